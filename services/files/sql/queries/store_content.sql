-- Point the file to its new bytes.
UPDATE module_files_file
SET state = 'STORED',
    revision = revision + 1,
    storage_key = $3,
    size_bytes = $4,
    sha256 = $5,
    upload_deadline = NULL,
    error_code = NULL,
    error_message = NULL,
    updated_at = now()
WHERE tenant_id = $1 AND id = $2
