    SELECT chunk_id, embedding <=> {vector} AS distance, NULL::bigint AS passing
    FROM module_embeddings_chunk_read AS chunk
    WHERE tenant_id = {tenant} AND space_id = {space}{filter}
    ORDER BY embedding <=> {vector}, chunk_id
    LIMIT {dense_limit}
