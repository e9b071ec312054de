-- The resources of one tenant and one space that a question's words, and its meaning where that is wanted, found, fused,
-- best first. The legs read keys only; the threshold and the texts come after them. One row without a resource says how
-- much the legs found when nothing is left. "+ 0" keeps the planner from relying on the index scan's relaxed order.
WITH dense AS MATERIALIZED (
{dense}
),
lexical_read AS MATERIALIZED (
{lexical_read}
),
lexical AS MATERIALIZED (
    SELECT entity_type, entity_id, bm25_score, count(*) OVER () AS passing
    FROM lexical_read AS stored
    WHERE bm25_score > 0 AND tenant_id = {tenant} AND entity_type = ANY ({types}::text[]){word_filter}
    ORDER BY bm25_score DESC, entity_type, entity_id
    LIMIT {window}
),
ranked AS (
    SELECT entity_type, entity_id, distance, bm25_score, dense_rank, lexical_rank
    FROM (
        SELECT entity_type, entity_id, distance, rank() OVER (ORDER BY distance + 0) AS dense_rank FROM dense
    ) AS by_meaning
    FULL JOIN (
        SELECT entity_type, entity_id, bm25_score, rank() OVER (ORDER BY bm25_score DESC) AS lexical_rank
        FROM lexical
    ) AS by_word USING (entity_type, entity_id)
),
candidate AS MATERIALIZED (
    SELECT stored.entity_type, stored.entity_id, stored.name, stored.embedding_text, stored.updated_at,
           {score} AS score, bm25_score, dense_rank, lexical_rank
    FROM ranked
    JOIN module_embeddings_unified AS stored
      ON stored.entity_type = ranked.entity_type AND stored.entity_id = ranked.entity_id
     AND stored.tenant_id = {tenant} AND stored.space_id = {space} AND stored.entity_type = ANY ({types}::text[])
),
found AS (
    SELECT candidate.*, {fused} AS fused_score
    FROM candidate
    CROSS JOIN (SELECT 1 - max(distance) AS low, 1 - min(distance) AS high FROM dense) AS cosines
    CROSS JOIN (
        {ideal}
    ) AS question
    WHERE {min_score}::float8 IS NULL OR score >= {min_score}::float8
    ORDER BY {order}, entity_type, entity_id
    LIMIT {rows}
)
SELECT counted.*, entity_type, entity_id, name, embedding_text, score, bm25_score, dense_rank, lexical_rank,
       fused_score, updated_at
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
ORDER BY {order}, entity_type, entity_id
