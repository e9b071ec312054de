-- Resources of the types $1 whose mirror or vector disagrees with the source of record, by reason, at most $6. Their
-- recipes are $2, the active space $3. A change of the last $4 seconds is on its way; a lease is stuck $5 seconds after
-- its end.
SELECT entity_type, entity_id, reason
FROM (
    SELECT entity_type, entity_id,
           CASE
               WHEN context.updated_at > now() - make_interval(secs => $4) THEN NULL
               WHEN mirror.status IS NULL THEN 'MISSING'
               WHEN context.revision IS NULL THEN 'ORPHANED'
               WHEN mirror.status = 'PROCESSING' AND mirror.lease_expires_at < now() - make_interval(secs => $5)
                   THEN 'STUCK'
               WHEN mirror.status NOT IN ('COMPLETED', 'FAILED') THEN NULL
               WHEN mirror.revision IS DISTINCT FROM context.revision THEN 'STALE'
               WHEN mirror.recipe IS DISTINCT FROM known.recipe THEN 'STALE'
               WHEN mirror.status = 'FAILED' THEN NULL
               WHEN mirror.space_id <> $3::smallint THEN 'OTHER_SPACE'
               WHEN vector.entity_id IS NULL THEN 'MISSING'
           END AS reason
    FROM module_embeddings_resource_context AS context
    FULL JOIN module_embeddings_resource AS mirror USING (entity_type, entity_id)
    JOIN unnest($1::text[], $2::text[]) AS known (entity_type, recipe) USING (entity_type)
    LEFT JOIN module_embeddings_unified AS vector USING (entity_type, entity_id)
) AS each
WHERE reason IS NOT NULL
LIMIT $6
