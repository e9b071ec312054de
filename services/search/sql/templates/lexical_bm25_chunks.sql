    SELECT chunk_id, file_id, tenant_id, space_id, language, -bm25_get_current_score() AS bm25_score
    FROM module_embeddings_chunk_read
    WHERE space_id = {space}
    ORDER BY lexemes <@> {word_query}
    LIMIT {lexical_limit}
