    SELECT chunk_id, file_id, tenant_id, space_id, language, -(lexemes <@> {word_query}) AS bm25_score
    FROM module_embeddings_chunk_read AS chunk
    WHERE tenant_id = {tenant} AND space_id = {space}{filter}
