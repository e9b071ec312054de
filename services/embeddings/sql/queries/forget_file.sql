-- Remove a file and, by reference, its chunks, if the lease $2 holds.
DELETE FROM module_embeddings_files_file
WHERE file_id = $1 AND lease_token = $2
RETURNING file_id
