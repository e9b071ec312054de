-- How many resources of some types one tenant has in one space, counted no further than a limit.
-- $1 tenant, $2 space, $3 types, $4 limit.
SELECT count(*)
FROM (
    SELECT
    FROM module_embeddings_unified
    WHERE tenant_id = $1 AND space_id = $2 AND entity_type = ANY ($3::text[])
    LIMIT $4
) AS counted;
