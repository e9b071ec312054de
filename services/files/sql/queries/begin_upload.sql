-- Set a storage key aside before its first byte. A stored file keeps its state until the new bytes are whole; any
-- other waits for them until the deadline. No row when the tenant has no such file.
WITH file AS (
    UPDATE module_files_file
    SET state = CASE state WHEN 'STORED' THEN state ELSE 'UPLOADING' END,
        upload_deadline = CASE state WHEN 'STORED' THEN NULL ELSE now() + $4 END,
        updated_at = CASE state WHEN 'FAILED' THEN now() ELSE updated_at END,
        error_code = NULL,
        error_message = NULL
    WHERE tenant_id = $1 AND id = $2
    RETURNING id
)
INSERT INTO module_files_garbage (storage_key, delete_after)
SELECT $3, now() + $4 + $5
FROM file
RETURNING storage_key
