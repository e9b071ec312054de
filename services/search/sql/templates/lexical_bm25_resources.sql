    SELECT entity_type, entity_id, tenant_id, language, -(lexemes <@> {word_query}) AS bm25_score
    FROM module_embeddings_resource_lexemes_read
    ORDER BY lexemes <@> {word_query}
    LIMIT {lexical_limit}
