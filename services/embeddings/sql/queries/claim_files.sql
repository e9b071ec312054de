-- Take up to $1 files that want work, each under a new lease of $2 seconds: first those whose lease ran out.
-- Each comes with what the source of record says of it now, NULL where it has the file no more.
WITH expired AS (
    SELECT file_id
    FROM module_embeddings_files_file
    WHERE status = 'PROCESSING' AND lease_expires_at < now()
    ORDER BY lease_expires_at
    LIMIT $1
    FOR UPDATE SKIP LOCKED
), pending AS (
    SELECT file_id
    FROM module_embeddings_files_file
    WHERE status = 'PENDING' AND available_at <= now()
    ORDER BY available_at, file_id
    LIMIT $1
    FOR UPDATE SKIP LOCKED
), due AS (
    SELECT file_id FROM expired
    UNION ALL
    SELECT file_id FROM pending
    LIMIT $1
)
UPDATE module_embeddings_files_file AS mirror
SET status = 'PROCESSING',
    lease_token = gen_random_uuid(),
    lease_expires_at = now() + make_interval(secs => $2),
    attempts = attempts + 1,
    stage = NULL,
    progress_done = 0,
    progress_total = 0,
    updated_at = now()
FROM due
LEFT JOIN module_embeddings_files_context AS context ON context.file_id = due.file_id
WHERE mirror.file_id = due.file_id
RETURNING mirror.file_id, mirror.tenant_id, mirror.name, mirror.generation, mirror.attempts, mirror.lease_token,
          mirror.traceparent,
          context.media_type, context.size_bytes, context.storage_key, context.revision, context.language,
          context.by_line
