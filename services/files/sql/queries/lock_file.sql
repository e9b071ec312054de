-- Lock a file for a change and read what the change must know of it.
SELECT storage_key
FROM module_files_file
WHERE tenant_id = $1 AND id = $2
FOR UPDATE
