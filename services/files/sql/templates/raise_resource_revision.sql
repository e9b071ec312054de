-- Ask for the resource $2 of the tenant $1 once more: a write gives it a new revision. Returns its name.
UPDATE {table}
SET name = name
WHERE tenant_id = $1 AND id = $2
RETURNING name
