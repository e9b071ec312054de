-- End an upload that will not become whole. A stored file keeps the bytes that it has.
UPDATE module_files_file
SET state = 'FAILED',
    error_code = $3,
    error_message = $4,
    upload_deadline = NULL,
    updated_at = now()
WHERE tenant_id = $1 AND id = $2 AND state <> 'STORED'
