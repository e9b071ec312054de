-- Return files to the queue that wait, or are leased, for longer than anything has to: a clock was wrong.
UPDATE module_embeddings_files_file
SET status = 'PENDING',
    lease_token = NULL,
    lease_expires_at = NULL,
    available_at = now(),
    stage = NULL,
    updated_at = now()
WHERE status = 'PENDING' AND available_at > now() + interval '1 day'
   OR status = 'PROCESSING' AND lease_expires_at > now() + interval '1 day'
RETURNING file_id
