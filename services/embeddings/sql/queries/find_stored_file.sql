-- The file $2 of the tenant $1, if its bytes are stored.
SELECT name, media_type, storage_key
FROM module_embeddings_files_context
WHERE tenant_id = $1 AND file_id = $2
