-- Put the vectors $3 of the rows $1 with the hashes $2 beside them, in the space $4, where they are still what they were
-- and belong to the locked $5.
INSERT INTO {table} ({columns}, space_id, embedding)
SELECT {columns}, $4, fresh.vector
FROM unnest($1::bigint[], $2::bytea[], $3::vector[]) AS fresh (row_id, row_hash, vector)
JOIN {table} AS active ON active.id = fresh.row_id AND active.text_hash = fresh.row_hash
WHERE active.space_id = (SELECT id FROM module_embeddings_space WHERE state = 'ACTIVE') AND active.{owner} = ANY ($5::bigint[])
ON CONFLICT DO NOTHING
