-- Resources of the type $1 whose mirror or vector disagrees with the source of record, by reason, at most $6. Their
-- recipe is $2, the active space $3. A change of the last $4 seconds is on its way; a lease is stuck $5 seconds after
-- its end. One that waits or is worked on gets its newest text by itself, but a change that nobody announced also has
-- readers who were not told of it.
SELECT entity_id, reason
FROM (
    SELECT entity_id,
           CASE
               WHEN context.updated_at > now() - make_interval(secs => $4) THEN NULL
               WHEN mirror.status IS NULL THEN 'MISSING'
               WHEN context.revision IS NULL THEN 'ORPHANED'
               WHEN mirror.status = 'PROCESSING' AND mirror.lease_expires_at < now() - make_interval(secs => $5)
                   THEN 'STUCK'
               WHEN mirror.announced_revision <> context.revision THEN 'STALE'
               WHEN mirror.status NOT IN ('COMPLETED', 'FAILED') THEN NULL
               WHEN mirror.revision IS DISTINCT FROM context.revision THEN 'STALE'
               WHEN mirror.recipe IS DISTINCT FROM $2 THEN 'STALE'
               WHEN mirror.status = 'FAILED' THEN NULL
               WHEN mirror.space_id <> $3::smallint THEN 'OTHER_SPACE'
               WHEN vector.entity_id IS NULL THEN 'MISSING'
           END AS reason
    FROM {context_view} AS context
    FULL JOIN (SELECT * FROM module_embeddings_resource WHERE entity_type = $1) AS mirror USING (entity_id)
    LEFT JOIN {table} AS vector USING (entity_id)
) AS each
WHERE reason IS NOT NULL
LIMIT $6
