-- What the resources $1 of one type are now, and what the index has of each.
SELECT context.*, stored.tenant_id AS stored_tenant_id, stored.name AS stored_name,
       stored.text_hash AS stored_text_hash, stored.space_id AS stored_space_id
FROM {context_view} AS context
LEFT JOIN {table} AS stored ON stored.entity_id = context.entity_id
WHERE context.entity_id = ANY ($1::bigint[])
