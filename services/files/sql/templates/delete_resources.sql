-- Delete the resources $2 of the tenant $1. Returns those that were there.
DELETE FROM {table}
WHERE tenant_id = $1 AND id = ANY ($2)
RETURNING id, name
