-- The resources of one tenant and one space nearest in meaning, best first. The walk reads keys only; the threshold and
-- the texts come after it. One row without a resource says how much was found when nothing is left. "+ 0" keeps the
-- planner from relying on the index scan's relaxed order.
WITH dense AS MATERIALIZED (
{dense}
),
found AS (
    SELECT stored.entity_type, stored.entity_id, stored.name, stored.embedding_text, stored.updated_at,
           1 - distance AS score, dense_rank
    FROM (
        SELECT entity_type, entity_id, distance, rank() OVER (ORDER BY distance + 0) AS dense_rank FROM dense
    ) AS ranked
    JOIN module_embeddings_unified AS stored
      ON stored.entity_type = ranked.entity_type AND stored.entity_id = ranked.entity_id
     AND stored.tenant_id = {tenant} AND stored.space_id = {space} AND stored.entity_type = ANY ({types}::text[])
    WHERE {passes}
)
SELECT counted.*, 0 AS lexical_read, 0 AS lexical_found, 0 AS lexical_passing, found.*, NULL::float8 AS bm25_score,
       NULL::bigint AS lexical_rank, NULL::float8 AS fused_score
FROM (
    SELECT count(*) AS dense_found, coalesce(max(passing), count(*) FILTER (WHERE {passes})) AS dense_passing FROM dense
) AS counted
LEFT JOIN found ON true
ORDER BY dense_rank, entity_type, entity_id
LIMIT {rows}
