-- Take up to $2 resources of one of the types $1 that want work, under one new lease of $3 seconds. The longest wait goes
-- first. One that failed twice is taken alone, so that whatever ails it takes no others along.
WITH lease AS MATERIALIZED (
    SELECT gen_random_uuid() AS token
), expired_first AS (
    SELECT entity_type, attempts, lease_expires_at AS since
    FROM module_embeddings_resource
    WHERE status = 'PROCESSING' AND lease_expires_at < now() AND entity_type = ANY ($1::text[])
    ORDER BY lease_expires_at
    LIMIT 1
), pending_first AS (
    SELECT oldest.entity_type, oldest.attempts, oldest.available_at AS since
    FROM unnest($1::text[]) AS known (entity_type)
    CROSS JOIN LATERAL (
        SELECT entity_type, attempts, available_at
        FROM module_embeddings_resource AS mirror
        WHERE mirror.entity_type = known.entity_type AND status = 'PENDING' AND available_at <= now()
        ORDER BY available_at, entity_id
        LIMIT 1
    ) AS oldest
), chosen AS MATERIALIZED (
    SELECT entity_type, attempts >= 2 AS alone, CASE WHEN attempts >= 2 THEN 1 ELSE $2 END AS most
    FROM (SELECT * FROM expired_first UNION ALL SELECT * FROM pending_first) AS first
    ORDER BY since
    LIMIT 1
), expired AS (
    SELECT entity_id
    FROM module_embeddings_resource
    WHERE entity_type = (SELECT entity_type FROM chosen) AND status = 'PROCESSING' AND lease_expires_at < now()
      AND (attempts >= 2) = (SELECT alone FROM chosen)
    ORDER BY lease_expires_at
    LIMIT (SELECT most FROM chosen)
    FOR UPDATE SKIP LOCKED
), pending AS (
    SELECT entity_id
    FROM module_embeddings_resource
    WHERE entity_type = (SELECT entity_type FROM chosen) AND status = 'PENDING' AND available_at <= now()
      AND (attempts >= 2) = (SELECT alone FROM chosen)
    ORDER BY available_at, entity_id
    LIMIT (SELECT most FROM chosen)
    FOR UPDATE SKIP LOCKED
), due AS (
    SELECT entity_id FROM (SELECT entity_id FROM expired UNION ALL SELECT entity_id FROM pending) AS either
    LIMIT (SELECT most FROM chosen)
)
UPDATE module_embeddings_resource AS mirror
SET status = 'PROCESSING',
    lease_token = lease.token,
    lease_expires_at = now() + make_interval(secs => $3),
    claimed_generation = generation,
    attempts = attempts + 1,
    updated_at = now()
FROM due, lease
WHERE mirror.entity_type = (SELECT entity_type FROM chosen) AND mirror.entity_id = due.entity_id
RETURNING mirror.entity_type, mirror.entity_id, mirror.attempts, mirror.lease_token, mirror.requested_at,
          mirror.traceparent
