-- Put the resources $1 of one type under the tenants $2 and names $3: their texts, and so their vectors, stay what they
-- are, in every space. Within the transaction that settled their rows under a valid lease.
WITH fresh AS MATERIALIZED (
    SELECT * FROM unnest($1::bigint[], $2::text[], $3::text[]) AS fresh (entity_id, tenant_id, name)
), renamed AS (
    UPDATE {table} AS vector
    SET tenant_id = fresh.tenant_id, name = fresh.name, updated_at = now()
    FROM fresh
    WHERE vector.entity_id = fresh.entity_id
    RETURNING vector.entity_type, vector.entity_id, vector.tenant_id
)
UPDATE module_embeddings_resource_lexemes AS words
SET tenant_id = renamed.tenant_id
FROM (SELECT DISTINCT entity_type, entity_id, tenant_id FROM renamed) AS renamed
WHERE words.entity_type = renamed.entity_type AND words.entity_id = renamed.entity_id
