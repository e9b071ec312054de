    SELECT entity_type, entity_id, tenant_id, language, -(lexemes <@> {word_query}) AS bm25_score
    FROM module_embeddings_resource_lexemes_read AS stored
    WHERE tenant_id = {tenant} AND entity_type = ANY ({types}::text[]){word_filter}
