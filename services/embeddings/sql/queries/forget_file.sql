-- Remove a file and, by reference, its chunks, if the lease $2 holds and nothing was asked for since generation $3.
DELETE FROM module_embeddings_files_file
WHERE file_id = $1 AND lease_token = $2 AND generation = $3
RETURNING file_id
