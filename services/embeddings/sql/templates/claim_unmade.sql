-- Up to $3 texts of the active space, of rows after $2, that have no vector in the space $1 yet, under the lease $4 of $5
-- seconds. OFFSET keeps the look-ups from becoming a join, which would read both spaces for each claim.
WITH due AS (
    SELECT active.id
    FROM {table} AS active
    WHERE active.space_id = (SELECT id FROM module_embeddings_space WHERE state = 'ACTIVE') AND active.id > $2
      AND NOT EXISTS (SELECT FROM {table} AS made WHERE {same} AND made.space_id = $1 OFFSET 0)
      AND NOT EXISTS (
          SELECT
          FROM module_embeddings_space_lease AS lease
          WHERE lease.table_name = {name} AND lease.row_id = active.id AND lease.expires_at > now()
          OFFSET 0
      )
    ORDER BY active.id
    LIMIT $3
), leased AS (
    INSERT INTO module_embeddings_space_lease AS lease (table_name, row_id, token, expires_at)
    SELECT {name}, id, $4, now() + make_interval(secs => $5)
    FROM due
    ORDER BY id
    ON CONFLICT (table_name, row_id) DO UPDATE
    SET token = excluded.token, expires_at = excluded.expires_at
    WHERE lease.expires_at <= now()
    RETURNING row_id
)
SELECT active.id AS row_id, active.{text} AS text, active.text_hash
FROM leased
JOIN {table} AS active ON active.id = leased.row_id
ORDER BY active.id
