-- Remove the files $1 that the source of record has no more, and by reference their chunks.
DELETE FROM module_embeddings_files_file AS mirror
WHERE mirror.file_id = ANY($1::bigint[])
  AND NOT EXISTS (SELECT FROM module_embeddings_files_context AS context WHERE context.file_id = mirror.file_id)
RETURNING mirror.file_id, mirror.name, mirror.tenant_id
