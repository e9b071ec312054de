-- Return the resources $2 of type $1 to the queue if their lease ended $3 seconds ago and nobody took them over, or if they
-- wait for longer than anything has to.
UPDATE module_embeddings_resource
SET status = 'PENDING',
    lease_token = NULL,
    lease_expires_at = NULL,
    claimed_generation = NULL,
    available_at = now(),
    updated_at = now()
WHERE entity_type = $1 AND entity_id = ANY ($2::bigint[])
  AND (
      status = 'PROCESSING' AND lease_expires_at < now() - make_interval(secs => $3)
      OR greatest(CASE status WHEN 'PENDING' THEN available_at END, lease_expires_at) > now() + interval '1 day'
  )
