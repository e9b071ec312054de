-- How many resources of some types one tenant has in one space, counted no further than is worth comparing one by one,
-- and that bound.
SELECT count(*) AS counted, {exact_up_to}::bigint AS most
FROM (
    SELECT
    FROM module_embeddings_unified AS stored
    WHERE tenant_id = {tenant} AND space_id = {space} AND entity_type = ANY ({types}::text[]){filter}
    LIMIT {exact_up_to}::bigint + 1
) AS counted
