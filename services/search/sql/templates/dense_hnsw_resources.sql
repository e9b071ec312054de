    SELECT entity_type, entity_id, embedding <=> {vector} AS distance, NULL::bigint AS passing
    FROM module_embeddings_unified
    WHERE tenant_id = {tenant} AND space_id = {space} AND entity_type = ANY ({types}::text[])
    ORDER BY embedding <=> {vector}, entity_type, entity_id
    LIMIT {dense_limit}
