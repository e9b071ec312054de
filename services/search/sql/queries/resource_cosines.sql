-- The cosine of the vector $3 with those of the resources of types $4 and ids $5 that the tenant $1 has in the space $2.
SELECT stored.entity_type, stored.entity_id, 1 - (stored.embedding <=> $3) AS score
FROM unnest($4::text[], $5::bigint[]) AS wanted (entity_type, entity_id)
JOIN module_embeddings_unified AS stored
  ON stored.entity_type = wanted.entity_type AND stored.entity_id = wanted.entity_id
WHERE stored.tenant_id = $1 AND stored.space_id = $2;
