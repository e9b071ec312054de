-- The objects of these keys are deleted.
DELETE FROM module_files_garbage
WHERE storage_key = ANY ($1) AND doomed
