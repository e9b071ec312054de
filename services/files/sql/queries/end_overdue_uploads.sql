-- End the uploads that no byte has reached until their deadline.
UPDATE module_files_file
SET state = 'FAILED',
    error_code = $1,
    error_message = $2,
    upload_deadline = NULL,
    updated_at = now()
WHERE id IN (
    SELECT id
    FROM module_files_file
    WHERE state = 'UPLOADING' AND upload_deadline <= now()
    ORDER BY upload_deadline
    LIMIT $3
    FOR UPDATE SKIP LOCKED
)
RETURNING id
