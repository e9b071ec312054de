-- Return the resources $2 of type $1 to the queue after $4 seconds, where the lease $3 holds. A fault $5, $6 stays
-- visible; $7 says whether the attempt counts. What was asked for again meanwhile keeps its own time, and the fault is
-- not said of it.
WITH held AS (
    SELECT entity_id
    FROM module_embeddings_resource
    WHERE entity_type = $1 AND entity_id = ANY ($2::bigint[]) AND lease_token = $3
    ORDER BY entity_id
    FOR NO KEY UPDATE
)
UPDATE module_embeddings_resource AS mirror
SET status = 'PENDING',
    lease_token = NULL,
    lease_expires_at = NULL,
    claimed_generation = NULL,
    available_at = CASE generation WHEN claimed_generation THEN now() + make_interval(secs => $4) ELSE available_at END,
    attempts = CASE WHEN $7 THEN attempts ELSE greatest(attempts - 1, 0) END,
    error_code = coalesce(CASE generation WHEN claimed_generation THEN $5 END, error_code),
    error_message = coalesce(CASE generation WHEN claimed_generation THEN $6 END, error_message),
    updated_at = now()
FROM held
WHERE mirror.entity_type = $1 AND mirror.entity_id = held.entity_id
