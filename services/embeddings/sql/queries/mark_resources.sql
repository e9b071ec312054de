-- Note that the resources ($1, $2) want attention since $3, asked for by the traces $4, and with them all that read
-- them: those of which it is known, and those that they refer to themselves where that type ($5) reads theirs ($6). The
-- source of record decides: one that it does not have, or that has no tenant there, is not marked. Nor is one whose
-- readers were told of its present revision already, where events ask ($9): it comes once more; but one that FAILED is,
-- where the event is newer than what failed, as who retried it may have given it no new revision. One that was
-- reconciled just now rests for $7 seconds, so that a burst of changes is one reconcile. What was asked for itself goes
-- $8 seconds ahead of its readers. The mirror keeps the revision that the readers were told of. Rows are locked in one
-- order, those that are to be removed next as well. A clock that is wrong makes no change one to come, or older than a
-- week. Returns for each whether it is there, and its readers.
WITH asked AS MATERIALIZED (
    SELECT entity_type, entity_id, greatest(least(min(requested_at), now()), now() - interval '7 days') AS requested_at,
           max(requested_at) AS last_requested_at, max(traceparent) AS traceparent
    FROM unnest($1::text[], $2::bigint[], $3::timestamptz[], $4::text[])
        AS wish (entity_type, entity_id, requested_at, traceparent)
    GROUP BY entity_type, entity_id
), present AS MATERIALIZED (
    -- OFFSET 0 keeps each of these joins a look-up by index; a hash of all resources would evaluate what all of them read.
    SELECT asked.entity_type, asked.entity_id, found.tenant_id, found.name, found.reads, found.revision,
           asked.requested_at, asked.traceparent,
           NOT $9 OR coalesce((
               SELECT found.revision <> mirror.announced_revision
                   OR (mirror.status = 'FAILED' AND asked.last_requested_at > mirror.requested_at)
               FROM module_embeddings_resource AS mirror
               WHERE mirror.entity_type = asked.entity_type AND mirror.entity_id = asked.entity_id
           ), true) AS is_news
    FROM asked
    CROSS JOIN LATERAL (
        SELECT context.tenant_id, context.name, context.reads, context.revision
        FROM module_embeddings_resource_context AS context
        WHERE context.entity_type = asked.entity_type AND context.entity_id = asked.entity_id
          AND context.tenant_id IS NOT NULL
        OFFSET 0
    ) AS found
), reader AS MATERIALIZED (
    SELECT known.dependent_type AS entity_type, known.dependent_id AS entity_id,
           asked.entity_type AS source_type, asked.entity_id AS source_id
    FROM asked
    LEFT JOIN present USING (entity_type, entity_id)
    CROSS JOIN LATERAL (
        SELECT dependent_type, dependent_id
        FROM module_embeddings_dependency
        WHERE source_type = asked.entity_type AND source_id = asked.entity_id
        OFFSET 0
    ) AS known
    WHERE present.is_news IS NOT FALSE
    UNION
    SELECT pair.reader, split_part(reference, ':', 2)::bigint, present.entity_type, present.entity_id
    FROM present
    CROSS JOIN unnest(present.reads) AS reference
    JOIN unnest($5::text[], $6::text[]) AS pair (reader, read)
      ON pair.reader = split_part(reference, ':', 1) AND pair.read = present.entity_type
    WHERE present.is_news AND CASE
        WHEN reference ~ '^[a-z_]+:[0-9]{1,19}$' THEN split_part(reference, ':', 2)::numeric <= 9223372036854775807
    END
), wanted AS (
    SELECT DISTINCT ON (entity_type, entity_id) entity_type, entity_id, tenant_id, name, requested_at, traceparent,
           revision,
           CASE distance WHEN 0 THEN now() - make_interval(secs => $8) ELSE now() END AS available_at
    FROM (
        SELECT entity_type, entity_id, tenant_id, name, requested_at, traceparent, revision, 0 AS distance
        FROM present
        WHERE is_news
        UNION ALL
        SELECT reader.entity_type, reader.entity_id, mirror.tenant_id, mirror.name, asked.requested_at,
               asked.traceparent, NULL, 1
        FROM reader
        JOIN asked ON asked.entity_type = reader.source_type AND asked.entity_id = reader.source_id
        CROSS JOIN LATERAL (
            SELECT tenant_id, name
            FROM module_embeddings_resource
            WHERE entity_type = reader.entity_type AND entity_id = reader.entity_id
            OFFSET 0
        ) AS mirror
        UNION ALL
        SELECT asked.entity_type, asked.entity_id, mirror.tenant_id, mirror.name, asked.requested_at,
               asked.traceparent, NULL, 0
        FROM asked
        LEFT JOIN present USING (entity_type, entity_id)
        CROSS JOIN LATERAL (
            SELECT tenant_id, name
            FROM module_embeddings_resource
            WHERE entity_type = asked.entity_type AND entity_id = asked.entity_id
            OFFSET 0
        ) AS mirror
        WHERE present.entity_id IS NULL
    ) AS each
    ORDER BY entity_type, entity_id, distance, requested_at
), marked AS (
    INSERT INTO module_embeddings_resource AS mirror
        (entity_type, entity_id, tenant_id, name, requested_at, traceparent, announced_revision, available_at)
    SELECT * FROM wanted ORDER BY entity_type, entity_id
    ON CONFLICT (entity_type, entity_id) DO UPDATE
    SET generation = mirror.generation + 1,
        status = CASE WHEN mirror.status = 'PROCESSING' THEN mirror.status ELSE 'PENDING' END,
        tenant_id = excluded.tenant_id,
        name = excluded.name,
        requested_at = CASE
            WHEN mirror.status = 'PENDING' OR mirror.generation <> mirror.claimed_generation THEN mirror.requested_at
            ELSE excluded.requested_at
        END,
        traceparent = excluded.traceparent,
        announced_revision = coalesce(excluded.announced_revision, mirror.announced_revision),
        attempts = 0,
        available_at = greatest(excluded.available_at, mirror.finished_at + make_interval(secs => $7)),
        updated_at = now()
)
SELECT asked.entity_type, asked.entity_id, present.entity_id IS NOT NULL AS present, coalesce(fan.readers, 0) AS readers
FROM asked
LEFT JOIN present USING (entity_type, entity_id)
LEFT JOIN (SELECT source_type, source_id, count(*) AS readers FROM reader GROUP BY source_type, source_id) AS fan
    ON fan.source_type = asked.entity_type AND fan.source_id = asked.entity_id
