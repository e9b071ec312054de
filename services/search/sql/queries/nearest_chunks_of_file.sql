-- The chunks of one file nearest to a vector, compared one by one, that reach a score.
-- $1 vector, $2 tenant, $3 space, $4 limit, $5 least score or null, $6 file.
-- A known file without a match answers one row whose chunk_id is null; an unknown file answers none.
WITH compared AS MATERIALIZED (
    SELECT chunk_id, embedding <=> $1 AS distance
    FROM module_embeddings_chunk_read
    WHERE file_id = $6 AND tenant_id = $2 AND space_id = $3
),
nearest AS MATERIALIZED (
    SELECT chunk_id, distance
    FROM compared
    WHERE $5::float8 IS NULL OR 1 - distance >= $5
    ORDER BY distance, chunk_id
    LIMIT $4
)
SELECT file.file_id, file.name AS file_name, chunk.chunk_id, chunk.position, chunk.page_from, chunk.page_to,
       1 - nearest.distance AS score, chunk.text
FROM module_embeddings_file_read AS file
LEFT JOIN (nearest JOIN module_embeddings_chunk_read AS chunk USING (chunk_id)) ON true
WHERE file.file_id = $6 AND file.tenant_id = $2
ORDER BY nearest.distance, nearest.chunk_id;
