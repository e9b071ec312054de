-- Forget the vectors of questions beyond the $1 used last, and those not used for $2; what another process is forgetting
-- or noting is left to it.
DELETE FROM module_search_query_vector
WHERE ctid = ANY (
    ARRAY(
        SELECT ctid FROM module_search_query_vector
        WHERE used_at < greatest(
            now() - $2::interval,
            (SELECT used_at FROM module_search_query_vector ORDER BY used_at DESC OFFSET $1::bigint - 1 LIMIT 1)
        )
        FOR UPDATE SKIP LOCKED
    )
);
