-- The files of one tenant that pass a filter, at most so many.
SELECT file_id
FROM module_embeddings_file_read AS file
WHERE file.tenant_id = {tenant}{file_filter}
LIMIT {files_limit}
