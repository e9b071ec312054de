SELECT {type} AS entity_type, entity_id, tenant_id, coalesce(name, '') AS name, revision, updated_at, reads
FROM {context_view}
