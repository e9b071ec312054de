-- Remove the chunks of a file in every space; runs within the transaction that writes the new ones.
DELETE FROM module_embeddings_file_chunk WHERE file_id = $1
