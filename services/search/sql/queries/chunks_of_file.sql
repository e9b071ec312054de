-- The chunks of one file in the active space in order, on some pages or all.
-- $1 file, $2 tenant, $3 first pages and $4 last pages of the ranges (null for all), $5 after position, $6 limit.
-- A known file without such chunks answers one row whose chunk_id is null; an unknown file answers none.
SELECT file.file_id, file.name AS file_name, file.page_count, chunk.chunk_id, chunk.position, chunk.page_from,
       chunk.page_to, chunk.char_start, chunk.char_end, chunk.text
FROM module_embeddings_file_read AS file
LEFT JOIN LATERAL (
    SELECT chunk_id, position, page_from, page_to, char_start, char_end, text
    FROM module_embeddings_chunk_read
    WHERE file_id = $1 AND tenant_id = $2 AND position > $5
      AND space_id = (SELECT id FROM module_embeddings_space WHERE state = 'ACTIVE')
      AND ($3::integer[] IS NULL OR EXISTS (
          SELECT FROM unnest($3::integer[], $4::integer[]) AS pages (first_page, last_page)
          WHERE page_from <= last_page AND page_to >= first_page
      ))
    ORDER BY position
    LIMIT $6
) AS chunk ON true
WHERE file.file_id = $1 AND file.tenant_id = $2
ORDER BY chunk.position;
