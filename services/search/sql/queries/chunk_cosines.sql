-- The cosine of the vector $3 with those of the chunks $4 that the tenant $1 has in the space $2.
SELECT chunk_id, 1 - (embedding <=> $3) AS score
FROM module_embeddings_chunk_read
WHERE tenant_id = $1 AND space_id = $2 AND chunk_id = ANY ($4::bigint[]);
