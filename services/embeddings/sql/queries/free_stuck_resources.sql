-- Return the resources ($1, $2) to the queue if their lease ended $3 seconds ago and nobody took them over.
UPDATE module_embeddings_resource AS mirror
SET status = 'PENDING',
    lease_token = NULL,
    lease_expires_at = NULL,
    claimed_generation = NULL,
    available_at = now(),
    updated_at = now()
FROM unnest($1::text[], $2::bigint[]) AS stuck (entity_type, entity_id)
WHERE mirror.entity_type = stuck.entity_type AND mirror.entity_id = stuck.entity_id
  AND mirror.status = 'PROCESSING' AND mirror.lease_expires_at < now() - make_interval(secs => $3)
