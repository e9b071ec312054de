-- End a file COMPLETED if the lease $2 still holds and nothing was asked for since generation $3.
UPDATE module_embeddings_files_file
SET status = 'COMPLETED',
    revision = $4,
    media_type = $5,
    page_count = $6,
    outcome = $7,
    outcome_reason = $8,
    recipe = $9,
    lease_token = NULL,
    lease_expires_at = NULL,
    stage = NULL,
    error_code = NULL,
    error_message = NULL,
    finished_at = now(),
    updated_at = now()
WHERE file_id = $1 AND lease_token = $2 AND generation = $3
RETURNING file_id
