    SELECT entity_type, entity_id, tenant_id, -(lexemes <@> {word_query}) AS bm25_score
    FROM module_embeddings_resource_lexemes_read
    WHERE tenant_id = {tenant} AND entity_type = ANY ({types}::text[])
