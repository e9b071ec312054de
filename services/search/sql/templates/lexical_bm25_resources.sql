    SELECT entity_type, entity_id, tenant_id, language, -bm25_get_current_score() AS bm25_score
    FROM module_embeddings_resource_lexemes_read
    ORDER BY lexemes <@> {word_query}
    LIMIT {lexical_limit}
