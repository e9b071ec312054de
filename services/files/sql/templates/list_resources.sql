-- At most $3 resources of the tenant $1 with an id above $2, in order of id.
SELECT id, {columns}, revision, created_at, updated_at
FROM {table}
WHERE tenant_id = $1 AND id > $2
ORDER BY id
LIMIT $3
