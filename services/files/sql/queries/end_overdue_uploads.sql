-- End the uploads whose deadline had passed by the given time, and still has.
UPDATE module_files_file
SET state = 'FAILED',
    error_code = $1,
    error_message = $2,
    upload_deadline = NULL,
    updated_at = now()
WHERE id IN (
    SELECT id
    FROM module_files_file
    WHERE state = 'UPLOADING' AND upload_deadline <= $4
    ORDER BY upload_deadline
    LIMIT $3
    FOR UPDATE SKIP LOCKED
)
RETURNING id
