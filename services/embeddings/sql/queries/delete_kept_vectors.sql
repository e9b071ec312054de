-- Forget the vectors that were kept while the file was under way; runs within the transaction that ends it.
DELETE FROM module_embeddings_kept_vector WHERE file_id = $1
