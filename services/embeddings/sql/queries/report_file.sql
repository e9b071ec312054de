-- Extend the lease $2 of a file by $4 seconds if the file is still what was claimed, and show progress where given.
UPDATE module_embeddings_files_file
SET lease_expires_at = now() + make_interval(secs => $4),
    stage = coalesce($5, stage),
    progress_done = coalesce($6, progress_done),
    progress_total = coalesce($7, progress_total),
    updated_at = now()
WHERE file_id = $1 AND lease_token = $2 AND generation = $3
RETURNING file_id
