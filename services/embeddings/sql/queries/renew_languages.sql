-- Have at most $1 files' chunks that do not tell their language take that of the chunks around them, where that was not
-- found out when they were made (migration 0017). Say how many files there were. Only chunks that change are written.
WITH old AS (
    SELECT file_id
    FROM module_embeddings_files_file
    WHERE status = 'COMPLETED' AND NOT languages_told
    ORDER BY file_id
    LIMIT $1
    FOR NO KEY UPDATE SKIP LOCKED
), told AS (
    SELECT ids[place] AS id, around.language
    FROM old
    CROSS JOIN LATERAL (
        SELECT array_agg(id ORDER BY position) AS ids, array_agg(text ORDER BY position) AS texts
        FROM module_embeddings_file_chunk AS chunk
        WHERE chunk.file_id = old.file_id
        GROUP BY space_id
        HAVING bool_or(language = 'und' AND declared_language IS NULL)
    ) AS chunks
    CROSS JOIN LATERAL cauce_languages_around(texts) AS around
), renewed AS (
    UPDATE module_embeddings_file_chunk AS chunk
    SET declared_language = told.language
    FROM told
    WHERE chunk.id = told.id
), noted AS (
    UPDATE module_embeddings_files_file AS file
    SET languages_told = true
    FROM old
    WHERE file.file_id = old.file_id
    RETURNING file.file_id
)
SELECT count(*) FROM noted
