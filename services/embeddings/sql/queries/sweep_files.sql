-- At most $1 files whose mirror disagrees with the source of record, by reason: an event that never came is repaired from
-- here. One whose bytes were LOST is tried again after $2 seconds: they may be back.
SELECT coalesce(context.file_id, mirror.file_id) AS file_id,
       CASE
           WHEN mirror.file_id IS NULL THEN 'MISSING'
           WHEN context.file_id IS NULL THEN 'ORPHANED'
           WHEN mirror.revision < context.revision THEN 'STALE'
           WHEN NOT present.recipe @> coalesce(mirror.recipe, 'null') THEN 'OTHER_RECIPE'
           ELSE 'LOST'
       END AS reason
FROM module_embeddings_files_context AS context
FULL JOIN module_embeddings_files_file AS mirror USING (file_id)
LEFT JOIN module_embeddings_recipe AS present ON true
WHERE mirror.file_id IS NULL
   OR context.file_id IS NULL
   OR (mirror.status IN ('COMPLETED', 'FAILED')
       AND (mirror.revision < context.revision OR NOT present.recipe @> coalesce(mirror.recipe, 'null')
            OR (mirror.error_code = 'CONTENT_MISSING' AND mirror.finished_at < now() - make_interval(secs => $2))))
LIMIT $1
