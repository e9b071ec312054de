-- Remove a file. No row when the tenant has no such file.
DELETE FROM module_files_file
WHERE tenant_id = $1 AND id = $2
RETURNING name, storage_key
