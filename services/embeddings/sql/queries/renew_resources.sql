-- Extend the lease $3 of the resources $2 of type $1 by $4 seconds, and say how many of them it still holds.
WITH renewed AS (
    UPDATE module_embeddings_resource
    SET lease_expires_at = now() + make_interval(secs => $4)
    WHERE entity_type = $1 AND entity_id = ANY ($2::bigint[]) AND lease_token = $3
    RETURNING 1
)
SELECT count(*) FROM renewed
