-- The resources of one tenant and one space nearest to a vector, compared one by one.
-- $1 vector, $2 tenant, $3 space, $4 limit, $5 least score or null, $6 types.
WITH compared AS MATERIALIZED (
    SELECT entity_type, entity_id, name, embedding_text, updated_at, embedding <=> $1 AS distance
    FROM module_embeddings_unified
    WHERE tenant_id = $2 AND space_id = $3 AND entity_type = ANY ($6::text[])
)
SELECT entity_type, entity_id, name, embedding_text, 1 - distance AS score, updated_at
FROM compared
WHERE $5::float8 IS NULL OR 1 - distance >= $5
ORDER BY distance, entity_type, entity_id
LIMIT $4;
