-- The resources of one tenant and one space that a question's words, and its meaning where that is wanted, found, fused,
-- best first. The legs read keys only; the threshold and the texts come after them. One row without a resource says how
-- much the legs found when nothing is left. "+ 0" keeps the planner from relying on the index scan's relaxed order. The
-- index of words is read outside of any CTE: inside, pg_textsearch scores every text that it found again, from the text.
WITH dense AS MATERIALIZED (
    SELECT nearest.*, rank() OVER (ORDER BY distance + 0) AS dense_rank,
           row_number() OVER (ORDER BY distance + 0, entity_type, entity_id) AS dense_place
    FROM (
{dense}
    ) AS nearest
)
SELECT dense_found, dense_passing, lexical_read, least(lexical_passing, {window}) AS lexical_found, lexical_passing,
       entity_type, entity_id, name, embedding_text, score, bm25_score, dense_rank, lexical_rank, fused_score, updated_at
FROM (
    SELECT count(*) AS lexical_read, count(*) FILTER (WHERE passing) AS lexical_passing,
           array_agg(entity_type) FILTER (WHERE passing) AS types, array_agg(entity_id) FILTER (WHERE passing) AS ids,
           array_agg(bm25_score) FILTER (WHERE passing) AS scores
    FROM (
        SELECT entity_type, entity_id, bm25_score,
               bm25_score > 0 AND tenant_id = {tenant} AND entity_type = ANY ({types}::text[]){word_filter} AS passing
        FROM (
{lexical_read}
        ) AS stored
    ) AS read
) AS by_word
CROSS JOIN (
    SELECT count(*) AS dense_found, coalesce(max(passing), count(*) FILTER (WHERE {passes})) AS dense_passing,
           1 - max(distance) FILTER (WHERE dense_place <= {candidates}) AS low, 1 - min(distance) AS high
    FROM dense
) AS by_meaning
LEFT JOIN LATERAL (
    WITH lexical AS (
        SELECT entity_type, entity_id, bm25_score, rank() OVER (ORDER BY bm25_score DESC) AS lexical_rank,
               row_number() OVER (ORDER BY bm25_score DESC, entity_type, entity_id) AS lexical_place
        FROM (
            SELECT entity_type, entity_id, bm25_score
            FROM unnest(types, ids, scores) AS word (entity_type, entity_id, bm25_score)
            ORDER BY bm25_score DESC, entity_type, entity_id
            LIMIT {window}
        ) AS best
    ),
    candidate AS MATERIALIZED (
        SELECT stored.entity_type, stored.entity_id, stored.name, stored.embedding_text, stored.updated_at,
               {score} AS score, bm25_score, dense_rank, lexical_rank, dense_place, lexical_place,
               least(dense_place, lexical_place) AS place, {codes_held} AS codes_held
        FROM dense
        FULL JOIN lexical USING (entity_type, entity_id)
        JOIN module_embeddings_unified AS stored USING (entity_type, entity_id)
        WHERE stored.tenant_id = {tenant} AND stored.space_id = {space} AND stored.entity_type = ANY ({types}::text[])
    )
    SELECT candidate.*, {fused}{rare_codes} AS fused_score
    FROM candidate
    CROSS JOIN (
        {ideal}
    ) AS question
    WHERE {min_score}::float8 IS NULL OR score >= {min_score}::float8
    ORDER BY {order}, entity_type, entity_id
    LIMIT {rows}
) AS found ON true
ORDER BY {order}, entity_type, entity_id
