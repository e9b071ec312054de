-- How many resources of the types $1 wait or are worked on, and for how many seconds the oldest has been asked for.
SELECT status, count(*) AS depth,
       coalesce(extract(epoch FROM now() - min(requested_at)), 0)::float8 AS oldest_age
FROM module_embeddings_resource
WHERE status IN ('PENDING', 'PROCESSING') AND entity_type = ANY ($1::text[])
GROUP BY status
