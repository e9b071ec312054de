-- The chunks of one tenant and one space nearest to a vector, compared one by one.
-- $1 vector, $2 tenant, $3 space, $4 limit, $5 least score or null.
WITH compared AS MATERIALIZED (
    SELECT chunk_id, embedding <=> $1 AS distance
    FROM module_embeddings_chunk_read
    WHERE tenant_id = $2 AND space_id = $3
),
nearest AS MATERIALIZED (
    SELECT chunk_id, distance
    FROM compared
    WHERE $5::float8 IS NULL OR 1 - distance >= $5
    ORDER BY distance, chunk_id
    LIMIT $4
)
SELECT chunk.file_id, file.name AS file_name, chunk_id, chunk.position, chunk.page_from, chunk.page_to,
       1 - nearest.distance AS score, chunk.text
FROM nearest
JOIN module_embeddings_chunk_read AS chunk USING (chunk_id)
JOIN module_embeddings_file_read AS file ON file.file_id = chunk.file_id AND file.tenant_id = $2
ORDER BY nearest.distance, chunk_id;
