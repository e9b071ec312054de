-- No file points to the storage key any more: delete its object after the given time.
INSERT INTO module_files_garbage (storage_key, delete_after)
VALUES ($1, now() + $2)
ON CONFLICT (storage_key) DO UPDATE SET delete_after = excluded.delete_after
