-- Note that the files $1 want attention (with the trace $2 that asked). The source of record decides: a file that it
-- does not have is not marked, and one that is already reconciled at its present revision, and by the present recipe,
-- has nothing to do. One of more than $3 bytes is large.
INSERT INTO module_embeddings_files_file AS mirror (file_id, tenant_id, name, traceparent, large)
SELECT DISTINCT ON (context.file_id) context.file_id, context.tenant_id, context.name, asked.traceparent,
       context.size_bytes > $3
FROM unnest($1::bigint[], $2::text[]) WITH ORDINALITY AS asked (file_id, traceparent, position)
JOIN module_embeddings_files_context AS context ON context.file_id = asked.file_id
ORDER BY context.file_id, asked.position DESC
ON CONFLICT (file_id) DO UPDATE
SET generation = mirror.generation + 1,
    status = CASE WHEN mirror.status = 'PROCESSING' THEN mirror.status ELSE 'PENDING' END,
    name = excluded.name,
    traceparent = excluded.traceparent,
    large = excluded.large,
    outcome = NULL,
    outcome_reason = NULL,
    media_type = NULL,
    page_count = NULL,
    progress_done = 0,
    progress_total = 0,
    error_code = NULL,
    error_message = NULL,
    finished_at = NULL,
    attempts = 0,
    available_at = now(),
    requested_at = now(),
    updated_at = now()
WHERE mirror.status IN ('PENDING', 'PROCESSING')
   OR mirror.revision < (
       SELECT context.revision FROM module_embeddings_files_context AS context WHERE context.file_id = mirror.file_id
   )
   OR NOT (SELECT present.recipe FROM module_embeddings_recipe AS present) @> coalesce(mirror.recipe, 'null')
