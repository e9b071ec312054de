-- Take up to $1 files that want work, each under a new lease of $2 seconds, at most $3 of them large: first those whose
-- lease ran out, then by turns. Of those whose worker ended twice one at a time, so that the one that ends workers takes
-- no other along to its last attempt. The next goes to the tenant with the fewest files in hand, among those with the longest
-- wait; of many tenants the first few after $4 are looked at. Each file comes with what the source of record says of it
-- now, NULL where it has it no more. One that is asked for anew while this runs is left for the next claim: its row would
-- be that of the new wish, and its context, which is read as of the start, the one before.
WITH RECURSIVE turn AS (
    -- The tenants with something pending, from the one after $4 on and around: one look into the index for each.
    SELECT $4::text AS tenant_id, false AS wrapped, 0 AS position
    UNION ALL
    SELECT next.tenant_id, next.wrapped, turn.position + 1
    FROM turn
    CROSS JOIN LATERAL (
        (
            SELECT tenant_id, turn.wrapped
            FROM module_embeddings_files_file
            WHERE status = 'PENDING' AND tenant_id > turn.tenant_id AND (NOT turn.wrapped OR tenant_id <= $4)
            ORDER BY tenant_id
            LIMIT 1
        )
        UNION ALL
        (
            SELECT tenant_id, true
            FROM module_embeddings_files_file
            WHERE status = 'PENDING' AND NOT turn.wrapped AND tenant_id <= $4
            ORDER BY tenant_id
            LIMIT 1
        )
        LIMIT 1
    ) AS next
), lane AS MATERIALIZED (
    -- OFFSET 0 keeps the walk in its order, and ends it where there is enough.
    SELECT turn.tenant_id, due.large, due.available_at
    FROM turn
    CROSS JOIN LATERAL (
        SELECT size.large, oldest.available_at
        FROM (VALUES (false), (true)) AS size (large)
        CROSS JOIN LATERAL (
            SELECT available_at
            FROM module_embeddings_files_file AS mirror
            WHERE mirror.status = 'PENDING' AND mirror.tenant_id = turn.tenant_id AND mirror.large = size.large
              AND mirror.available_at <= now()
            ORDER BY available_at
            LIMIT 1
        ) AS oldest
        WHERE NOT size.large OR $3 > 0
        OFFSET 0
    ) AS due
    WHERE turn.position > 0
    LIMIT 64
), in_hand AS (
    SELECT tenant_id, count(*) AS files FROM module_embeddings_files_file WHERE status = 'PROCESSING' GROUP BY tenant_id
), chosen AS MATERIALIZED (
    -- A few more than needed: others may be at the same files now.
    SELECT lane.tenant_id, lane.large, coalesce(in_hand.files, 0) AS in_hand
    FROM lane
    LEFT JOIN in_hand USING (tenant_id)
    ORDER BY coalesce(in_hand.files, 0), lane.available_at
    LIMIT $1::integer + 3
), expired AS (
    SELECT file_id, large, lease_expires_at
    FROM module_embeddings_files_file
    WHERE status = 'PROCESSING' AND lease_expires_at < now() AND (NOT large OR $3 > 0) AND attempts < 2
    ORDER BY lease_expires_at
    LIMIT $1
    FOR UPDATE SKIP LOCKED
), suspect AS (
    SELECT file_id, large, lease_expires_at
    FROM module_embeddings_files_file
    WHERE status = 'PROCESSING' AND lease_expires_at < now() AND (NOT large OR $3 > 0) AND attempts >= 2
      AND NOT EXISTS (
          SELECT
          FROM module_embeddings_files_file
          WHERE status = 'PROCESSING' AND lease_expires_at >= now() AND attempts > 2
      )
    ORDER BY lease_expires_at
    LIMIT 1
    FOR UPDATE SKIP LOCKED
), pending AS (
    SELECT file.file_id, chosen.large, chosen.tenant_id, chosen.in_hand, file.available_at
    FROM chosen
    CROSS JOIN LATERAL (
        SELECT file_id, available_at
        FROM module_embeddings_files_file AS mirror
        WHERE mirror.status = 'PENDING' AND mirror.tenant_id = chosen.tenant_id AND mirror.large = chosen.large
          AND mirror.available_at <= now()
        ORDER BY available_at, file_id
        LIMIT CASE WHEN chosen.large THEN least($1, $3::integer) ELSE $1 END
        FOR UPDATE SKIP LOCKED
    ) AS file
), due AS (
    SELECT file_id
    FROM (
        SELECT file_id, large, place, since,
               row_number() OVER (PARTITION BY large ORDER BY place, since) AS place_by_size
        FROM (
            SELECT file_id, large, 0 AS place, lease_expires_at AS since FROM expired
            UNION ALL
            SELECT file_id, large, 0, lease_expires_at FROM suspect
            UNION ALL
            SELECT file_id, large, in_hand + row_number() OVER (PARTITION BY tenant_id ORDER BY available_at, file_id),
                   available_at
            FROM pending
        ) AS either
    ) AS each
    WHERE NOT large OR place_by_size <= $3
    ORDER BY place, since, file_id
    LIMIT $1
)
UPDATE module_embeddings_files_file AS mirror
SET status = 'PROCESSING',
    lease_token = gen_random_uuid(),
    lease_expires_at = now() + make_interval(secs => $2),
    asked_revision = context.revision,
    -- What is held since before the database's start was not renewed because nobody could: no fault of what it is.
    attempts = attempts + CASE WHEN mirror.status = 'PROCESSING' AND mirror.updated_at < pg_postmaster_start_time() THEN 0
                               ELSE 1 END,
    stage = NULL,
    progress_done = 0,
    progress_total = 0,
    updated_at = now()
FROM due
CROSS JOIN LATERAL (
    -- As of the start, where a row that is locked is taken as it is then.
    SELECT generation FROM module_embeddings_files_file WHERE file_id = due.file_id OFFSET 0
) AS seen
LEFT JOIN module_embeddings_files_context AS context ON context.file_id = due.file_id
WHERE mirror.file_id = due.file_id AND mirror.generation = seen.generation
RETURNING mirror.file_id, mirror.tenant_id, mirror.name, mirror.generation, mirror.attempts, mirror.lease_token,
          mirror.traceparent, mirror.large AS is_large,
          context.media_type, context.size_bytes, context.storage_key, context.revision, context.language,
          context.by_line
