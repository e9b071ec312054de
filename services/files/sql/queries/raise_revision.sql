-- Ask for a stored file to be processed again. No row when it changed since the given revision was read.
UPDATE module_files_file
SET revision = revision + 1,
    updated_at = now()
WHERE tenant_id = $1 AND id = $2 AND revision = $3 AND state = 'STORED'
RETURNING revision, updated_at
