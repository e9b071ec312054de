-- The vectors of texts that this tenant has in this space already.
SELECT DISTINCT ON (text_hash) text_hash, embedding
FROM module_embeddings_file_chunk
WHERE tenant_id = $1 AND space_id = $2 AND text_hash = ANY($3::bytea[])
ORDER BY text_hash
