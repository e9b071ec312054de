-- Keep descriptions of images of the file $1 by the describer $5 for as long as it is under way, if the lease $2 still holds
-- at generation $3. They stand below those of its end, which replaces them.
WITH held AS (
    SELECT file_id FROM module_embeddings_files_file
    WHERE file_id = $1 AND lease_token = $2 AND generation = $3
    FOR KEY SHARE
), lowest AS (
    SELECT least(min(position), 0) AS position FROM module_embeddings_file_image WHERE file_id = $1
)
INSERT INTO module_embeddings_file_image (file_id, position, tenant_id, digest, describer, text, spans)
SELECT held.file_id, coalesce(lowest.position, 0) - fresh.number, $4, decode(fresh.digest, 'hex'), $5, fresh.text, fresh.spans
FROM held, lowest, jsonb_to_recordset($6::jsonb) AS fresh (number integer, digest text, text text, spans integer[])
