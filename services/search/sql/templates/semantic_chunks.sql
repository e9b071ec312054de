-- The chunks of one tenant and one space nearest in meaning, best first. The walk reads ids only; the threshold and the
-- texts come after it. One row without a chunk says how much was found when nothing is left. "+ 0" keeps the planner
-- from relying on the index scan's relaxed order.
WITH dense AS MATERIALIZED (
{dense}
),
found AS (
    SELECT chunk.file_id, file.name AS file_name, chunk_id, chunk.position, chunk.page_from, chunk.page_to,
           chunk.char_start, chunk.char_end, chunk.text, 1 - distance AS score, dense_rank
    FROM (SELECT chunk_id, distance, rank() OVER (ORDER BY distance + 0) AS dense_rank FROM dense) AS ranked
    JOIN module_embeddings_chunk_read AS chunk USING (chunk_id)
    JOIN module_embeddings_file_read AS file ON file.file_id = chunk.file_id AND file.tenant_id = {tenant}
    WHERE {passes}
)
SELECT counted.*, 0 AS lexical_read, 0 AS lexical_found, 0 AS lexical_passing, found.*, NULL::float8 AS bm25_score,
       NULL::bigint AS lexical_rank, NULL::float8 AS fused_score
FROM (
    SELECT count(*) AS dense_found, coalesce(max(passing), count(*) FILTER (WHERE {passes})) AS dense_passing FROM dense
) AS counted
LEFT JOIN found ON true
ORDER BY dense_rank, chunk_id
LIMIT {rows}
