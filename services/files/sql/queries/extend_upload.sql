-- Bytes arrive: move the deadline of the upload, if it is to a file that is there, and of its storage key.
WITH file AS (
    UPDATE module_files_file
    SET upload_deadline = now() + $4
    WHERE tenant_id = $1 AND id = $2 AND state = 'UPLOADING'
)
UPDATE module_files_garbage
SET delete_after = now() + $4 + $5
WHERE storage_key = $3 AND NOT doomed
