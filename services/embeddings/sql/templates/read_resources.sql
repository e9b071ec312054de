-- What the resources $1 of one type are now, and what the index has of each; a text without its words counts as none.
SELECT context.*, CASE WHEN lexemes.tenant_id = stored.tenant_id THEN stored.tenant_id END AS stored_tenant_id,
       stored.name AS stored_name,
       CASE WHEN lexemes.entity_id IS NOT NULL THEN stored.text_hash END AS stored_text_hash,
       stored.space_id AS stored_space_id
FROM {context_view} AS context
LEFT JOIN {table} AS stored ON stored.entity_id = context.entity_id
    AND stored.space_id = (SELECT id FROM module_embeddings_space WHERE state = 'ACTIVE')
LEFT JOIN module_embeddings_resource_lexemes AS lexemes
    ON lexemes.entity_type = stored.entity_type AND lexemes.entity_id = stored.entity_id
WHERE context.entity_id = ANY ($1::bigint[]) AND context.tenant_id IS NOT NULL
