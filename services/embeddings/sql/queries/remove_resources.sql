-- Remove the resources ($1, $2) that the source of record has no more, and by reference their vectors and dependencies.
WITH gone AS (
    SELECT mirror.entity_type, mirror.entity_id
    FROM unnest($1::text[], $2::bigint[]) AS asked (entity_type, entity_id)
    JOIN module_embeddings_resource AS mirror USING (entity_type, entity_id)
    WHERE NOT EXISTS (
        SELECT FROM module_embeddings_resource_context AS context
        WHERE context.entity_type = asked.entity_type AND context.entity_id = asked.entity_id
          AND context.tenant_id IS NOT NULL
    )
    ORDER BY mirror.entity_type, mirror.entity_id
    FOR UPDATE OF mirror
)
DELETE FROM module_embeddings_resource AS mirror
USING gone
WHERE mirror.entity_type = gone.entity_type AND mirror.entity_id = gone.entity_id
RETURNING mirror.entity_type, mirror.entity_id, mirror.tenant_id, mirror.name
