-- How many files wait or are worked on, and for how many seconds the oldest of each has been asked for.
SELECT status, count(*) AS depth,
       coalesce(extract(epoch FROM now() - min(requested_at)), 0)::float8 AS oldest_age
FROM module_embeddings_files_file
WHERE status IN ('PENDING', 'PROCESSING')
GROUP BY status
