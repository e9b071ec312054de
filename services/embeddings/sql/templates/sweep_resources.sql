-- Resources of the type $1 whose mirror, vector or words disagree with the source of record or with one another, by
-- reason, at most $5, with the time of the change that is not in the index, where that is why. Their recipe is $2, their vectors are those of the active space. A change of the last $3 seconds is
-- on its way. What should have been worked on $4 seconds ago is stuck, and so is what waits for longer than anything has
-- to. One that waits or is worked on gets its newest text by itself, but a change that nobody announced also has readers who were not told of it.
-- One that was given up is tried again after $6 seconds: what ailed it may be over.
SELECT entity_id, reason, changed_at
FROM (
    SELECT entity_id,
           CASE
               WHEN context.updated_at > now() - make_interval(secs => $3) THEN NULL
               WHEN context.entity_id IS NOT NULL AND context.tenant_id IS NULL AND mirror.status IS NULL THEN 'UNOWNED'
               WHEN mirror.status IS NULL THEN 'MISSING'
               WHEN context.entity_id IS NULL OR context.tenant_id IS NULL THEN 'ORPHANED'
               WHEN mirror.status = 'PROCESSING' AND mirror.lease_expires_at < now() - make_interval(secs => $4)
                   THEN 'STUCK'
               WHEN greatest(
                        CASE mirror.status WHEN 'PENDING' THEN mirror.available_at END, mirror.lease_expires_at
                    ) > now() + interval '1 day'
                   THEN 'STUCK'
               WHEN mirror.announced_revision <> context.revision THEN 'STALE'
               WHEN mirror.status NOT IN ('COMPLETED', 'FAILED') THEN NULL
               WHEN mirror.revision IS DISTINCT FROM context.revision THEN 'STALE'
               WHEN mirror.recipe IS DISTINCT FROM $2 OR mirror.tenant_id <> context.tenant_id THEN 'STALE'
               WHEN mirror.status = 'FAILED' THEN
                   CASE
                       WHEN mirror.error_code = 'ATTEMPTS_EXHAUSTED'
                            AND mirror.finished_at < now() - make_interval(secs => $6)
                           THEN 'EXHAUSTED'
                   END
               WHEN vector.entity_id IS NULL
                    AND EXISTS (SELECT FROM {table} AS other WHERE other.entity_id = mirror.entity_id)
                   THEN 'OTHER_SPACE'
               WHEN vector.entity_id IS NULL OR lexemes.entity_id IS NULL THEN 'MISSING'
               WHEN vector.name <> context.name OR vector.tenant_id <> context.tenant_id
                    OR lexemes.tenant_id <> context.tenant_id
                   THEN 'STALE'
           END AS reason,
           CASE WHEN mirror.revision IS DISTINCT FROM context.revision THEN context.updated_at END AS changed_at
    FROM {context_view} AS context
    FULL JOIN (SELECT * FROM module_embeddings_resource WHERE entity_type = $1) AS mirror USING (entity_id)
    LEFT JOIN (
        SELECT *
        FROM {table}
        WHERE space_id = (SELECT id FROM module_embeddings_space WHERE state = 'ACTIVE')
    ) AS vector USING (entity_id)
    LEFT JOIN (
        SELECT entity_id, tenant_id FROM module_embeddings_resource_lexemes WHERE entity_type = $1
    ) AS lexemes USING (entity_id)
) AS each
WHERE reason IS NOT NULL AND entity_id IS NOT NULL
LIMIT $5
