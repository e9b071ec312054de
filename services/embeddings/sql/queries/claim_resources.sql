-- Take up to $2 resources of one of the types $1 that want work, under one new lease of $3 seconds: first those whose
-- lease ran out, then by turns of the tenants, from the one after $4 on. The type is the one that this tenant waits for
-- longest; up to ten tenants share the batch. A resource that failed twice is taken alone, so that whatever ails it takes
-- no others along.
WITH RECURSIVE lease AS MATERIALIZED (
    SELECT gen_random_uuid() AS token
), turn AS (
    -- The tenants with something pending, from the one after $4 on and around: one look into the index for each.
    SELECT $4::text AS tenant_id, false AS wrapped, 0 AS position
    UNION ALL
    SELECT next.tenant_id, next.wrapped, turn.position + 1
    FROM turn
    CROSS JOIN LATERAL (
        (
            SELECT tenant_id, turn.wrapped
            FROM module_embeddings_resource
            WHERE status = 'PENDING' AND tenant_id > turn.tenant_id AND (NOT turn.wrapped OR tenant_id <= $4)
            ORDER BY tenant_id
            LIMIT 1
        )
        UNION ALL
        (
            SELECT tenant_id, true
            FROM module_embeddings_resource
            WHERE status = 'PENDING' AND NOT turn.wrapped AND tenant_id <= $4
            ORDER BY tenant_id
            LIMIT 1
        )
        LIMIT 1
    ) AS next
), expired_first AS (
    SELECT NULL::text AS tenant_id, entity_type, attempts
    FROM module_embeddings_resource
    WHERE status = 'PROCESSING' AND lease_expires_at < now() AND entity_type = ANY ($1::text[])
    ORDER BY lease_expires_at
    LIMIT 1
), pending_first AS (
    SELECT turn.tenant_id, longest.entity_type, longest.attempts
    FROM turn
    CROSS JOIN LATERAL (
        SELECT known.entity_type, oldest.attempts
        FROM unnest($1::text[]) AS known (entity_type)
        CROSS JOIN LATERAL (
            SELECT attempts, available_at
            FROM module_embeddings_resource AS mirror
            WHERE mirror.status = 'PENDING' AND mirror.tenant_id = turn.tenant_id
              AND mirror.entity_type = known.entity_type AND mirror.available_at <= now()
            ORDER BY available_at, entity_id
            LIMIT 1
        ) AS oldest
        ORDER BY oldest.available_at
        LIMIT 1
    ) AS longest
    WHERE turn.position > 0
    LIMIT 1
), chosen AS MATERIALIZED (
    SELECT tenant_id, entity_type, attempts >= 2 AS alone, CASE WHEN attempts >= 2 THEN 1 ELSE $2 END AS most
    FROM (SELECT * FROM expired_first UNION ALL SELECT * FROM pending_first) AS first
    LIMIT 1
), sharer AS MATERIALIZED (
    SELECT turn.tenant_id
    FROM turn
    CROSS JOIN LATERAL (
        SELECT 1
        FROM module_embeddings_resource AS mirror
        WHERE mirror.status = 'PENDING' AND mirror.tenant_id = turn.tenant_id
          AND mirror.entity_type = (SELECT entity_type FROM chosen) AND mirror.available_at <= now()
        ORDER BY available_at
        LIMIT 1
    ) AS due
    WHERE turn.position > 0
    LIMIT 10
), expired AS (
    SELECT entity_id
    FROM module_embeddings_resource
    WHERE entity_type = (SELECT entity_type FROM chosen) AND status = 'PROCESSING' AND lease_expires_at < now()
      AND (attempts >= 2) = (SELECT alone FROM chosen)
    ORDER BY lease_expires_at
    LIMIT (SELECT most FROM chosen)
    FOR UPDATE SKIP LOCKED
), pending AS (
    SELECT resource.entity_id
    FROM sharer
    CROSS JOIN LATERAL (
        SELECT entity_id
        FROM module_embeddings_resource AS mirror
        WHERE mirror.status = 'PENDING' AND mirror.tenant_id = sharer.tenant_id
          AND mirror.entity_type = (SELECT entity_type FROM chosen) AND mirror.available_at <= now()
          AND (attempts >= 2) = (SELECT alone FROM chosen)
        ORDER BY available_at, entity_id
        LIMIT ceil((SELECT most FROM chosen)::float8 / (SELECT count(*) FROM sharer))
        FOR UPDATE SKIP LOCKED
    ) AS resource
), due AS (
    SELECT entity_id FROM (SELECT entity_id FROM expired UNION ALL SELECT entity_id FROM pending) AS either
    LIMIT (SELECT most FROM chosen)
)
UPDATE module_embeddings_resource AS mirror
SET status = 'PROCESSING',
    lease_token = lease.token,
    lease_expires_at = now() + make_interval(secs => $3),
    claimed_generation = generation,
    -- What is held since before the database's start was not renewed because nobody could: no fault of what it is.
    attempts = attempts + CASE WHEN mirror.status = 'PROCESSING' AND mirror.updated_at < pg_postmaster_start_time() THEN 0
                               ELSE 1 END,
    updated_at = now()
FROM lease
WHERE mirror.entity_type = (SELECT entity_type FROM chosen)
  AND mirror.entity_id = ANY (ARRAY (SELECT entity_id FROM due))  -- a join would read the type's whole table
RETURNING mirror.entity_type, mirror.entity_id, mirror.attempts, mirror.lease_token, mirror.requested_at,
          mirror.traceparent, (SELECT tenant_id FROM chosen) AS turn
