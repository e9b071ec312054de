-- Register a file whose bytes are still to come.
INSERT INTO module_files_file (tenant_id, name, media_type, metadata, upload_deadline)
VALUES ($1, $2, $3, $4, now() + $5)
RETURNING id, name, media_type, metadata, state, revision, size_bytes, sha256, storage_key, error_code, error_message,
          created_at, updated_at
