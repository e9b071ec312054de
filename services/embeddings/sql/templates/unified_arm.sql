SELECT {type} AS entity_type, id, entity_id, tenant_id, name, embedding_text, embedding, text_hash, space_id, updated_at
FROM {table}
