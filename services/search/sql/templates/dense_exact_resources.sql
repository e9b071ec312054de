    SELECT entity_type, entity_id, distance, count(*) FILTER (WHERE {passes}) OVER () AS passing
    FROM (
        SELECT entity_type, entity_id, embedding <=> {vector} AS distance
        FROM module_embeddings_unified AS stored
        WHERE tenant_id = {tenant} AND space_id = {space} AND entity_type = ANY ({types}::text[]){filter}
        OFFSET 0
    ) AS compared
    ORDER BY distance, entity_type, entity_id
    LIMIT {dense_limit}
