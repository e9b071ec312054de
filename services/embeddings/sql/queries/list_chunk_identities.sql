-- What tells the chunks of a file in the space $2 from another version of them, in order of position.
SELECT position, page_from, page_to, char_start, char_end, text_hash, space_id, declared_language
FROM module_embeddings_file_chunk
WHERE file_id = $1 AND space_id = $2
ORDER BY position
