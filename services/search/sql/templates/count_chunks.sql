-- How many chunks pass a filter, counted no further than is worth comparing one by one, and that bound: the geometric
-- mean of the space's size and of what an index scan has to walk, so that comparing costs about as much as walking.
WITH bound AS (
    SELECT greatest({exact_up_to}::float8, sqrt({exact_up_to}::float8 / 10 * greatest(reltuples, 0)))::bigint AS most
    FROM pg_class
    WHERE oid = to_regclass('module_embeddings_file_chunk_embedding_{space}')
)
SELECT count(*) AS counted, (SELECT most FROM bound) AS most
FROM (
    SELECT
    FROM module_embeddings_chunk_read AS chunk
    WHERE tenant_id = {tenant} AND space_id = {space}{filter}
    LIMIT (SELECT most + 1 FROM bound)
) AS counted
