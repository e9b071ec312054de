-- The chunks of one tenant and one space that a question's words, and its meaning where that is wanted, found, fused,
-- best first. The legs read ids only; the threshold and the texts come after them. One row without a chunk says how much
-- the legs found when nothing is left. "+ 0" keeps the planner from relying on the index scan's relaxed order.
WITH dense AS MATERIALIZED (
{dense}
),
lexical_read AS MATERIALIZED (
{lexical_read}
),
lexical AS MATERIALIZED (
    SELECT chunk_id, bm25_score, count(*) OVER () AS passing
    FROM lexical_read AS chunk
    WHERE bm25_score > 0 AND tenant_id = {tenant} AND space_id = {space}{filter}
    ORDER BY bm25_score DESC, chunk_id
    LIMIT {window}
),
ranked AS (
    SELECT chunk_id, distance, bm25_score, dense_rank, lexical_rank
    FROM (SELECT chunk_id, distance, rank() OVER (ORDER BY distance + 0) AS dense_rank FROM dense) AS by_meaning
    FULL JOIN (
        SELECT chunk_id, bm25_score, rank() OVER (ORDER BY bm25_score DESC) AS lexical_rank FROM lexical
    ) AS by_word USING (chunk_id)
),
candidate AS MATERIALIZED (
    SELECT chunk.file_id, chunk.chunk_id, chunk.position, chunk.page_from, chunk.page_to,
           chunk.char_start, chunk.char_end, chunk.text, {score} AS score, bm25_score, dense_rank, lexical_rank
    FROM ranked
    JOIN module_embeddings_chunk_read AS chunk USING (chunk_id)
),
weighed AS MATERIALIZED (
    SELECT candidate.*, {fused} AS own_score
    FROM candidate
    CROSS JOIN (SELECT 1 - max(distance) AS low, 1 - min(distance) AS high FROM dense) AS cosines
    CROSS JOIN (
        {ideal}
    ) AS question
),
found AS (
    SELECT weighed.*, file.name AS file_name, {fused_with_neighbours} AS fused_score
    FROM weighed
    JOIN module_embeddings_file_read AS file ON file.file_id = weighed.file_id AND file.tenant_id = {tenant}
    WHERE {min_score}::float8 IS NULL OR score >= {min_score}::float8
    ORDER BY {order}, chunk_id
    LIMIT {rows}
)
SELECT counted.*, file_id, file_name, chunk_id, position, page_from, page_to, char_start, char_end, text,
       score, bm25_score, dense_rank, lexical_rank, fused_score
FROM (
    SELECT by_meaning.*, by_word.*, (SELECT count(*) FROM lexical_read) AS lexical_read
    FROM (
        SELECT count(*) AS dense_found, coalesce(max(passing), count(*) FILTER (WHERE {passes})) AS dense_passing
        FROM dense
    ) AS by_meaning
    CROSS JOIN (
        SELECT count(*) AS lexical_found, coalesce(max(passing), 0) AS lexical_passing FROM lexical
    ) AS by_word
) AS counted
LEFT JOIN found ON true
ORDER BY {order}, chunk_id
