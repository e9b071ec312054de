SELECT {type} AS entity_type, entity_id, tenant_id, name, revision, updated_at, reads
FROM {context_view}
