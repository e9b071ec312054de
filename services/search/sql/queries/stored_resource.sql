-- What the index holds of the resource $2 of type $1 for the tenant $3, and how its processing stands.
SELECT mirror.entity_type, mirror.entity_id, mirror.name, stored.embedding_text,
       encode(stored.text_hash, 'hex') AS text_hash, space.name AS space, stored.updated_at,
       extract(epoch FROM now() - stored.updated_at)::float8 AS age_seconds,
       mirror.status, mirror.error_code, mirror.error_message
FROM module_embeddings_resource_read AS mirror
LEFT JOIN module_embeddings_unified AS stored
    ON stored.entity_type = $1 AND stored.entity_id = $2 AND stored.tenant_id = mirror.tenant_id
    AND stored.space_id = (SELECT id FROM module_embeddings_space WHERE state = 'ACTIVE')
LEFT JOIN module_embeddings_space AS space ON space.id = stored.space_id
WHERE mirror.entity_type = $1 AND mirror.entity_id = $2 AND mirror.tenant_id = $3;
