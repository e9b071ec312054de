-- Note that the files $1 want attention (with the trace $2 that asked). The source of record decides: a file that it
-- does not have is not marked. One that is under way for its present revision goes on as it is, with its attempts and its
-- last fault; one that is reconciled at it, and by the present recipe, has nothing to do, unless its bytes were missing $4 seconds ago. One of more than $3 bytes is
-- large.
INSERT INTO module_embeddings_files_file AS mirror (file_id, tenant_id, name, asked_revision, traceparent, large)
SELECT DISTINCT ON (context.file_id) context.file_id, context.tenant_id, context.name, context.revision,
       asked.traceparent, context.size_bytes > $3
FROM unnest($1::bigint[], $2::text[]) WITH ORDINALITY AS asked (file_id, traceparent, position)
JOIN module_embeddings_files_context AS context ON context.file_id = asked.file_id
ORDER BY context.file_id, asked.position DESC
ON CONFLICT (file_id) DO UPDATE
SET generation = mirror.generation + 1,
    status = CASE WHEN mirror.status = 'PROCESSING' THEN mirror.status ELSE 'PENDING' END,
    name = excluded.name,
    asked_revision = excluded.asked_revision,
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
WHERE CASE
    WHEN mirror.status IN ('PENDING', 'PROCESSING') THEN coalesce(mirror.asked_revision, -1) < excluded.asked_revision
    ELSE mirror.revision < excluded.asked_revision
        OR NOT (SELECT present.recipe FROM module_embeddings_recipe AS present) @> coalesce(mirror.recipe, 'null')
        OR (mirror.error_code = 'CONTENT_MISSING' AND mirror.finished_at < now() - make_interval(secs => $4))
END
