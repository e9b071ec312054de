-- The chunks of one tenant and one space nearest to a vector, by the approximate index.
-- $1 vector, $2 tenant, $3 space, $4 limit, $5 least score or null.
-- The threshold stands outside: inside, the index scan would walk on for rows that cannot reach it. So does the file's
-- name: a join inside can cost the index. The index scan's order is relaxed; "+ 0" keeps the planner from relying on it.
WITH nearest AS MATERIALIZED (
    SELECT chunk_id, file_id, position, page_from, page_to, text, embedding <=> $1 AS distance
    FROM module_embeddings_chunk_read
    WHERE tenant_id = $2 AND space_id = $3
    ORDER BY embedding <=> $1, chunk_id
    LIMIT $4
)
SELECT nearest.file_id, file.name AS file_name, nearest.chunk_id, nearest.position, nearest.page_from, nearest.page_to,
       1 - nearest.distance AS score, nearest.text
FROM nearest
JOIN module_embeddings_file_read AS file ON file.file_id = nearest.file_id AND file.tenant_id = $2
WHERE $5::float8 IS NULL OR 1 - nearest.distance >= $5
ORDER BY nearest.distance + 0, nearest.chunk_id;
