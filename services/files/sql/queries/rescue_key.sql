-- Take a storage key out of the garbage because a file will point to it. No row when that is too late.
DELETE FROM module_files_garbage
WHERE storage_key = $1 AND NOT doomed
RETURNING storage_key
