-- End a file COMPLETED if the lease $2 still holds, nothing was asked for since generation $3, and $10 is the space that
-- is active until this transaction ends.
UPDATE module_embeddings_files_file
SET status = 'COMPLETED',
    revision = $4,
    media_type = $5,
    page_count = $6,
    outcome = $7,
    outcome_reason = $8,
    recipe = $9,
    languages_told = true,
    lease_token = NULL,
    lease_expires_at = NULL,
    stage = NULL,
    error_code = NULL,
    error_message = NULL,
    finished_at = now(),
    updated_at = now()
WHERE file_id = $1 AND lease_token = $2 AND generation = $3
  AND EXISTS (SELECT FROM module_embeddings_space WHERE id = $10 AND state = 'ACTIVE' FOR SHARE)
RETURNING file_id
