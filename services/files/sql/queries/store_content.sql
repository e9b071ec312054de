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
RETURNING id, name, media_type, metadata, state, revision, size_bytes, sha256, storage_key, error_code, error_message,
          created_at, updated_at
