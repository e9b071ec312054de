-- module_embeddings_files_context: what the embeddings service knows of a file. The anti-corruption layer:
-- only this view knows the columns of the files service.
CREATE OR REPLACE VIEW module_embeddings_files_context AS
SELECT id AS file_id, tenant_id, name, media_type, size_bytes, storage_key, revision, created_at,
       substring(lower(metadata ->> 'language') FROM '^([a-z]{2,3})(?:-|$)') AS language,
       coalesce(metadata ->> 'passages' = 'lines', false) AS by_line
FROM module_files_file
WHERE state = 'STORED';

-- module_embeddings_files_status: what the embeddings service publishes of a file's processing. Counts are
-- derived from rows, never kept apart.
CREATE OR REPLACE VIEW module_embeddings_files_status AS
SELECT m.file_id, m.tenant_id, m.status, m.revision, m.outcome, m.outcome_reason, m.media_type,
       m.page_count AS pages,
       (
           SELECT count(*)
           FROM module_embeddings_file_chunk AS c
           WHERE c.file_id = m.file_id
             AND c.space_id = (SELECT id FROM module_embeddings_space WHERE state = 'ACTIVE')
       ) AS chunks,
       m.stage, m.progress_done, m.progress_total, m.attempts, m.error_code, m.error_message,
       m.requested_at, m.finished_at, m.updated_at,
       CASE WHEN m.status = 'COMPLETED' THEN (
           SELECT jsonb_object_agg(p.kind, p.pages)
           FROM (
               SELECT kind, count(*) AS pages
               FROM module_embeddings_file_page
               WHERE file_id = m.file_id
               GROUP BY kind
           ) AS p
       ) END AS page_kinds,
       coalesce(i.failed, 0) AS failed_descriptions, i.last_error AS description_error
FROM module_embeddings_files_file AS m
LEFT JOIN LATERAL (
    SELECT count(*) AS failed, (array_agg(error ORDER BY position DESC))[1] AS last_error
    FROM module_embeddings_file_image
    WHERE file_id = m.file_id AND error IS NOT NULL AND m.status = 'COMPLETED'
) AS i ON true;

-- module_embeddings_chunk_read and module_embeddings_file_read: the read models that search may see. Bare columns
-- of one table each, so that a query over them uses the table's indexes; a join for a column that is not asked for is
-- left out by the planner.
CREATE OR REPLACE VIEW module_embeddings_chunk_read AS
SELECT id AS chunk_id, file_id, tenant_id, position, page_from, page_to, char_start, char_end, text, text_hash,
       space_id, embedding, language, lexemes, declared_language
FROM module_embeddings_file_chunk;

CREATE OR REPLACE VIEW module_embeddings_file_read AS
SELECT m.file_id, m.tenant_id, m.name, m.status, m.outcome, m.media_type, m.page_count, m.updated_at, c.created_at
FROM module_embeddings_files_file AS m
LEFT JOIN module_embeddings_files_context AS c ON c.file_id = m.file_id;
