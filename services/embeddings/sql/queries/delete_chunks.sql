-- Remove the chunks of a file; runs within the transaction that writes the new ones.
DELETE FROM module_embeddings_file_chunk WHERE file_id = $1
