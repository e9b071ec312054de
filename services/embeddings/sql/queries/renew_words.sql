-- Make what at most $1 chunks are found by again, where an earlier edition of the rules made it (migration 0014). Say how
-- many there were. What is generated is generated again if a column that it is made of is set.
WITH old AS (
    SELECT id
    FROM module_embeddings_file_chunk
    WHERE words_edition < 2
    ORDER BY id
    LIMIT $1
    FOR UPDATE SKIP LOCKED
), renewed AS (
    UPDATE module_embeddings_file_chunk AS chunk
    SET words_edition = DEFAULT, declared_language = declared_language
    FROM old
    WHERE chunk.id = old.id
    RETURNING chunk.id
)
SELECT count(*) FROM renewed
