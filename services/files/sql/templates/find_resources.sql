-- The resources $2 of the tenant $1.
SELECT id, {columns}, revision, created_at, updated_at
FROM {table}
WHERE tenant_id = $1 AND id = ANY ($2)
