-- The vectors of texts that this tenant has in this space already, and those kept of the file $4 that is under way.
SELECT DISTINCT ON (text_hash) text_hash, embedding
FROM (
    SELECT text_hash, embedding FROM module_embeddings_file_chunk
    WHERE tenant_id = $1 AND space_id = $2 AND text_hash = ANY($3::bytea[])
    UNION ALL
    SELECT text_hash, embedding FROM module_embeddings_kept_vector
    WHERE file_id = $4 AND space_id = $2 AND text_hash = ANY($3::bytea[])
) AS known
ORDER BY text_hash
