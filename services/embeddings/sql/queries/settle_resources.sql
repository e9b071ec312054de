-- End the reconcile of the resources $3 of type $1, where the lease $2 still holds and $5, if
-- it is one, is the space that is active until this transaction ends. All of the batch ($12) is locked, in
-- one order. What was asked for again meanwhile goes back to the queue, to rest there for $11 seconds, and no fault is
-- said of it. A revision that was not read is the present one. Returns the resources that were settled.
WITH held AS (
    SELECT entity_id
    FROM module_embeddings_resource
    WHERE entity_type = $1 AND entity_id = ANY ($12::bigint[]) AND lease_token = $2
      AND (
          $5::smallint IS NULL
          OR EXISTS (SELECT FROM module_embeddings_space WHERE id = $5 AND state = 'ACTIVE' FOR SHARE)
      )
    ORDER BY entity_id
    FOR NO KEY UPDATE
)
UPDATE module_embeddings_resource AS mirror
SET status = CASE
        WHEN mirror.generation <> mirror.claimed_generation THEN 'PENDING'
        WHEN outcome.error_code IS NULL THEN 'COMPLETED'
        ELSE 'FAILED'
    END,
    tenant_id = coalesce(outcome.tenant_id, mirror.tenant_id),
    name = coalesce(outcome.name, mirror.name),
    revision = coalesce(
        outcome.revision,
        (
            SELECT context.revision
            FROM module_embeddings_resource_context AS context
            WHERE context.entity_type = $1 AND context.entity_id = mirror.entity_id
        ),
        mirror.revision
    ),
    recipe = $4,
    space_id = CASE WHEN outcome.error_code IS NULL THEN $5::smallint END,
    error_code = CASE mirror.generation WHEN mirror.claimed_generation THEN outcome.error_code END,
    error_message = CASE mirror.generation WHEN mirror.claimed_generation THEN outcome.error_message END,
    available_at = now() + make_interval(secs => $11),
    attempts = CASE WHEN outcome.error_code IS NULL THEN 0 ELSE mirror.attempts END,
    lease_token = NULL,
    lease_expires_at = NULL,
    claimed_generation = NULL,
    finished_at = now(),
    updated_at = now()
FROM held
JOIN unnest($3::bigint[], $6::text[], $7::text[], $8::bigint[], $9::text[], $10::text[])
    AS outcome (entity_id, tenant_id, name, revision, error_code, error_message) USING (entity_id)
WHERE mirror.entity_type = $1 AND mirror.entity_id = held.entity_id
RETURNING mirror.entity_id, mirror.tenant_id, mirror.name
