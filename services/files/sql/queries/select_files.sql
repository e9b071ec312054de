-- Files with an id in a range, newest first, each with what the embeddings service publishes of its processing.
SELECT f.id, f.name, f.media_type, f.metadata, f.state, f.revision, f.size_bytes, f.sha256, f.storage_key,
       f.error_code, f.error_message, f.created_at, f.updated_at,
       p.status AS p_status, p.revision AS p_revision, p.outcome AS p_outcome, p.outcome_reason AS p_outcome_reason,
       p.media_type AS p_media_type, p.pages AS p_pages, p.chunks AS p_chunks, p.stage AS p_stage,
       p.progress_done AS p_progress_done, p.progress_total AS p_progress_total, p.attempts AS p_attempts,
       p.error_code AS p_error_code, p.error_message AS p_error_message, p.finished_at AS p_finished_at,
       p.updated_at AS p_updated_at, p.page_kinds AS p_page_kinds,
       p.failed_descriptions AS p_failed_descriptions, p.description_error AS p_description_error
FROM module_files_file AS f
LEFT JOIN module_embeddings_files_status AS p ON p.file_id = f.id AND p.tenant_id = f.tenant_id
WHERE f.tenant_id = $1 AND f.id BETWEEN $2 AND $3
ORDER BY f.id DESC
LIMIT $4
