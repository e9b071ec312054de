-- Claim storage keys whose time had come by the given one. They come up again after a while unless they are forgotten before.
UPDATE module_files_garbage
SET doomed = true,
    delete_after = now() + $1
WHERE storage_key IN (
    SELECT storage_key
    FROM module_files_garbage
    WHERE delete_after <= $3
    ORDER BY delete_after
    LIMIT $2
    FOR UPDATE SKIP LOCKED
)
RETURNING storage_key
