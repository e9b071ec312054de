-- The chunks of the tenant $1 in the active space that stand right before and after the positions $3 of the files $2.
-- One look-up each, however large the planner takes them to be together.
SELECT beside.file_id, chunk.*
FROM (
    SELECT file_id, found + step AS position
    FROM unnest($2::bigint[], $3::integer[]) AS place (file_id, found)
    CROSS JOIN unnest(ARRAY[-1, 1]) AS step
    EXCEPT
    SELECT file_id, found FROM unnest($2::bigint[], $3::integer[]) AS place (file_id, found)
) AS beside
CROSS JOIN LATERAL (
    SELECT chunk_id, position, page_from, page_to, char_start, char_end, text
    FROM module_embeddings_chunk_read AS there
    WHERE there.file_id = beside.file_id AND there.position = beside.position AND tenant_id = $1
      AND space_id = (SELECT id FROM module_embeddings_space WHERE state = 'ACTIVE')
    LIMIT 1
) AS chunk;
