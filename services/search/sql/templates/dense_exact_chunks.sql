    SELECT chunk_id, distance, count(*) FILTER (WHERE {passes}) OVER () AS passing
    FROM (
        SELECT chunk_id, embedding <=> {vector} AS distance
        FROM module_embeddings_chunk_read AS chunk
        WHERE tenant_id = {tenant} AND space_id = {space}{filter}
        OFFSET 0
    ) AS compared
    ORDER BY distance, chunk_id
    LIMIT {dense_limit}
