-- Remove what is kept of a file's pages and images; runs within the transaction that writes it anew.
WITH images AS (
    DELETE FROM module_embeddings_file_image WHERE file_id = $1
)
DELETE FROM module_embeddings_file_page WHERE file_id = $1
