-- Return a file to the queue after $4 seconds. A fault $5, $6 stays visible; $7 says whether the attempt counts,
-- $8 that the file turned out to be large. What was asked for since generation $3 keeps its own time, and none of that
-- is said of it.
UPDATE module_embeddings_files_file
SET status = 'PENDING',
    lease_token = NULL,
    lease_expires_at = NULL,
    available_at = CASE generation WHEN $3 THEN now() + make_interval(secs => $4) ELSE available_at END,
    attempts = CASE WHEN $7 THEN attempts ELSE greatest(attempts - 1, 0) END,
    error_code = coalesce(CASE generation WHEN $3 THEN $5 END, error_code),
    error_message = coalesce(CASE generation WHEN $3 THEN $6 END, error_message),
    large = large OR ($8 AND generation = $3),
    stage = NULL,
    updated_at = now()
WHERE file_id = $1 AND lease_token = $2
