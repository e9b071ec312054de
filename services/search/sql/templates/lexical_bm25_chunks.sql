    SELECT chunk_id, file_id, tenant_id, space_id, language, -(lexemes <@> {word_query}) AS bm25_score
    FROM module_embeddings_chunk_read
    ORDER BY lexemes <@> {word_query}
    LIMIT {lexical_limit}
