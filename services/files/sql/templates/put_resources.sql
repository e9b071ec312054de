-- Put the definitions in $2, a JSON array, as resources of the tenant $1. Returns those that are new or changed. One
-- that is there already as it stands, or whose id is another tenant's, is locked and left alone.
INSERT INTO {table} AS stored (id, tenant_id, {columns})
SELECT id, $1, {columns}
FROM json_to_recordset($2) AS given (id bigint, {definitions})
ORDER BY id
ON CONFLICT (id) DO UPDATE
SET ({columns}) = ROW ({excluded_columns})
WHERE stored.tenant_id = excluded.tenant_id
  AND ({stored_columns}) IS DISTINCT FROM ({excluded_columns})
-- The xmax of a row that was there before is this transaction, which had to lock it.
RETURNING id, revision, created_at, updated_at, xmax = 0 AS created
