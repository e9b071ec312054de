    SELECT entity_type, entity_id, embedding <=> {vector} AS distance
    FROM module_embeddings_unified
    WHERE tenant_id = {tenant} AND space_id = {space} AND entity_type = ANY ({types}::text[])
    ORDER BY embedding <=> {vector}
    LIMIT {dense_limit}
