-- How many chunks one tenant has in one space, counted no further than a limit.
-- $1 tenant, $2 space, $3 limit.
SELECT count(*)
FROM (
    SELECT FROM module_embeddings_chunk_read WHERE tenant_id = $1 AND space_id = $2 LIMIT $3
) AS counted;
