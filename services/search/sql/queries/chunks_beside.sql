-- The chunks of the tenant $1 in the active space that stand right before and after the positions $3 of the files $2.
SELECT chunk.file_id, chunk_id, position, page_from, page_to, char_start, char_end, text
FROM (
    SELECT file_id, found + step AS position
    FROM unnest($2::bigint[], $3::integer[]) AS place (file_id, found)
    CROSS JOIN unnest(ARRAY[-1, 1]) AS step
    EXCEPT
    SELECT file_id, found FROM unnest($2::bigint[], $3::integer[]) AS place (file_id, found)
) AS beside
JOIN module_embeddings_chunk_read AS chunk USING (file_id, position)
WHERE tenant_id = $1 AND space_id = (SELECT id FROM module_embeddings_space WHERE state = 'ACTIVE');
