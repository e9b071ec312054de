-- An upload is under way: move the deadline of its storage key, and of its file if that waits for bytes. A file that is
-- locked is just being pointed to bytes; waiting for it while holding the key would wait for who wants the key next.
WITH file AS (
    UPDATE module_files_file
    SET upload_deadline = now() + $4
    WHERE id = (
        SELECT id
        FROM module_files_file
        WHERE tenant_id = $1 AND id = $2 AND state = 'UPLOADING'
        FOR UPDATE SKIP LOCKED
    )
)
UPDATE module_files_garbage
SET delete_after = now() + $4 + $5
WHERE storage_key = $3 AND NOT doomed
