-- What the index holds of the resource $2 of type $1 for the tenant $3, and how its processing stands.
SELECT stored.entity_type, stored.entity_id, stored.name, stored.embedding_text,
       encode(stored.text_hash, 'hex') AS text_hash, space.name AS space, stored.updated_at,
       extract(epoch FROM now() - stored.updated_at)::float8 AS age_seconds, mirror.status
FROM module_embeddings_unified AS stored
JOIN module_embeddings_space AS space ON space.id = stored.space_id
JOIN module_embeddings_resource_read AS mirror
    ON mirror.entity_type = stored.entity_type AND mirror.entity_id = stored.entity_id
WHERE stored.entity_type = $1 AND stored.entity_id = $2 AND stored.tenant_id = $3;
