-- The resources of one tenant and one space nearest to a vector, by each type's approximate index.
-- $1 vector, $2 tenant, $3 space, $4 limit, $5 least score or null, $6 types.
-- The planner leaves out the arms of other types and merges the index scans of the rest. The threshold stands outside.
WITH nearest AS MATERIALIZED (
    SELECT entity_type, entity_id, name, embedding_text, updated_at, embedding <=> $1 AS distance
    FROM module_embeddings_unified
    WHERE tenant_id = $2 AND space_id = $3 AND entity_type = ANY ($6::text[])
    ORDER BY embedding <=> $1
    LIMIT $4
)
SELECT entity_type, entity_id, name, embedding_text, 1 - distance AS score, updated_at
FROM nearest
WHERE $5::float8 IS NULL OR 1 - distance >= $5
ORDER BY distance + 0, entity_type, entity_id;
