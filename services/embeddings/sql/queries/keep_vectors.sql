-- Keep vectors of the file $1 for as long as it is under way, if the lease $2 still holds at generation $3.
WITH held AS (
    SELECT file_id FROM module_embeddings_files_file
    WHERE file_id = $1 AND lease_token = $2 AND generation = $3
    FOR KEY SHARE
)
INSERT INTO module_embeddings_kept_vector (file_id, space_id, text_hash, embedding)
SELECT held.file_id, $4, fresh.text_hash, fresh.embedding
FROM held, unnest($5::bytea[], $6::vector[]) AS fresh (text_hash, embedding)
ON CONFLICT DO NOTHING
