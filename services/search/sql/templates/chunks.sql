-- The chunks of one tenant and one space that a question's words, and its meaning where that is wanted, found, fused,
-- best first. The legs read ids only; the threshold and the texts come after them. One row without a chunk says how much
-- the legs found when nothing is left. "+ 0" keeps the planner from relying on the index scan's relaxed order. The index
-- of words is read outside of any CTE: inside, pg_textsearch scores every text that it found again, from the text.
WITH dense AS MATERIALIZED (
    SELECT nearest.*, rank() OVER (ORDER BY distance + 0) AS dense_rank,
           row_number() OVER (ORDER BY distance + 0, chunk_id) AS dense_place
    FROM (
{dense}
    ) AS nearest
)
SELECT dense_found, dense_passing, lexical_read, least(lexical_passing, {window}) AS lexical_found, lexical_passing,
       file_id, file_name, chunk_id, position, page_from, page_to, char_start, char_end, text,
       score, bm25_score, dense_rank, lexical_rank, fused_score
FROM (
    SELECT count(*) AS lexical_read, count(*) FILTER (WHERE passing) AS lexical_passing,
           array_agg(chunk_id) FILTER (WHERE passing) AS ids, array_agg(bm25_score) FILTER (WHERE passing) AS scores
    FROM (
        SELECT chunk_id, bm25_score, bm25_score > 0 AND tenant_id = {tenant} AND space_id = {space}{filter} AS passing
        FROM (
{lexical_read}
        ) AS chunk
    ) AS read
) AS by_word
CROSS JOIN (
    SELECT count(*) AS dense_found, coalesce(max(passing), count(*) FILTER (WHERE {passes})) AS dense_passing,
           1 - max(distance) FILTER (WHERE dense_place <= {candidates}) AS low, 1 - min(distance) AS high
    FROM dense
) AS by_meaning
LEFT JOIN LATERAL (
    WITH lexical AS (
        SELECT chunk_id, bm25_score, rank() OVER (ORDER BY bm25_score DESC) AS lexical_rank,
               row_number() OVER (ORDER BY bm25_score DESC, chunk_id) AS lexical_place
        FROM (
            SELECT chunk_id, bm25_score FROM unnest(ids, scores) AS word (chunk_id, bm25_score)
            ORDER BY bm25_score DESC, chunk_id
            LIMIT {window}
        ) AS best
    ),
    candidate AS MATERIALIZED (
        SELECT chunk.file_id, chunk.chunk_id, chunk.position, length(chunk.text) AS characters,
               {score} AS score, bm25_score, dense_rank, lexical_rank, dense_place, lexical_place,
               least(dense_place, lexical_place) AS place, {codes_held} AS codes_held
        FROM dense
        FULL JOIN lexical USING (chunk_id)
        JOIN module_embeddings_chunk_read AS chunk USING (chunk_id)
    ),
    weighed AS (
        SELECT candidate.*, {fused} AS own_score
        FROM candidate
        CROSS JOIN (
            {ideal}
        ) AS question
    ),
    best AS (
        SELECT *
        FROM (SELECT weighed.*, {fused_with_neighbours}{rare_codes} AS fused_score FROM weighed) AS fused
        WHERE {min_score}::float8 IS NULL OR score >= {min_score}::float8
        ORDER BY {order}, chunk_id
        LIMIT {rows}
    )
    SELECT chunk.file_id, file.name AS file_name, chunk_id, chunk.position, chunk.page_from, chunk.page_to,
           chunk.char_start, chunk.char_end, chunk.text, score, bm25_score, dense_rank, lexical_rank, place, fused_score
    FROM best
    JOIN module_embeddings_chunk_read AS chunk USING (chunk_id)
    JOIN module_embeddings_file_read AS file ON file.file_id = chunk.file_id AND file.tenant_id = {tenant}
) AS found ON true
ORDER BY {order}, chunk_id
