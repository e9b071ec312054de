-- The chunk $3 of the file $2 of the tenant $1, with a row for each of its pages that says where its text stands; one
-- row without a page when none does.
SELECT chunk.id AS chunk_id, chunk.position, chunk.page_from, chunk.page_to, chunk.char_start, chunk.char_end,
       page.number, page.width, page.height, page.unit, page.spans
FROM module_embeddings_file_chunk AS chunk
LEFT JOIN module_embeddings_file_page AS page
    ON page.file_id = chunk.file_id AND page.number BETWEEN chunk.page_from AND chunk.page_to AND page.unit IS NOT NULL
WHERE chunk.tenant_id = $1 AND chunk.file_id = $2 AND chunk.id = $3
ORDER BY page.number
