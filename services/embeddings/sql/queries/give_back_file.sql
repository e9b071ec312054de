-- Return a file to the queue after $3 seconds. A fault $4, $5 stays visible; $6 says whether the attempt counts,
-- $7 that the file turned out to be large.
UPDATE module_embeddings_files_file
SET status = 'PENDING',
    lease_token = NULL,
    lease_expires_at = NULL,
    available_at = now() + make_interval(secs => $3),
    attempts = CASE WHEN $6 THEN attempts ELSE greatest(attempts - 1, 0) END,
    error_code = coalesce($4, error_code),
    error_message = coalesce($5, error_message),
    large = large OR $7,
    stage = NULL,
    updated_at = now()
WHERE file_id = $1 AND lease_token = $2
