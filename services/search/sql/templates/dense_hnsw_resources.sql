    SELECT entity_type, entity_id, embedding <=> {vector} AS distance, NULL::bigint AS passing
    FROM module_embeddings_unified AS stored
    WHERE tenant_id = {tenant} AND space_id = {space} AND entity_type = ANY ({types}::text[]){filter}
    ORDER BY embedding <=> {vector}, entity_type, entity_id
    LIMIT {dense_limit}
