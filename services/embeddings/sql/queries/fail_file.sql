-- End a file FAILED under the same condition. Its chunks are of a content that is no more: they go.
WITH failed AS (
    UPDATE module_embeddings_files_file
    SET status = 'FAILED',
        revision = $4,
        outcome = NULL,
        outcome_reason = NULL,
        error_code = $5,
        error_message = $6,
        recipe = $7,
        lease_token = NULL,
        lease_expires_at = NULL,
        stage = NULL,
        finished_at = now(),
        updated_at = now()
    WHERE file_id = $1 AND lease_token = $2 AND generation = $3
    RETURNING file_id
), removed AS (
    DELETE FROM module_embeddings_file_chunk AS chunk
    USING failed
    WHERE chunk.file_id = failed.file_id
), pages AS (
    DELETE FROM module_embeddings_file_page AS page
    USING failed
    WHERE page.file_id = failed.file_id
), images AS (
    DELETE FROM module_embeddings_file_image AS image
    USING failed
    WHERE image.file_id = failed.file_id
)
SELECT file_id FROM failed
