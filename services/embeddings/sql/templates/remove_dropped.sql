-- Remove up to $3 vectors of the dropped space $1, of rows after $2. Answers how many, and the last of them.
WITH removed AS (
    DELETE FROM {table}
    WHERE id = ANY (
        ARRAY (
            SELECT id
            FROM {table}
            WHERE id > $2 AND space_id = (SELECT id FROM module_embeddings_space WHERE id = $1 AND state = 'RETIRED')
            ORDER BY id
            LIMIT $3
        )
    )
    RETURNING id
)
SELECT count(*) AS removed, max(id) AS last FROM removed
