-- How many texts the active space has, and how many of them have no vector in the space $1.
SELECT count(*) AS texts, count(*) FILTER (WHERE made.id IS NULL) AS missing
FROM {table} AS active
LEFT JOIN {table} AS made ON {same} AND made.space_id = $1
WHERE active.space_id = (SELECT id FROM module_embeddings_space WHERE state = 'ACTIVE')
