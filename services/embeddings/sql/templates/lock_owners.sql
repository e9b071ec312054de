-- Keep what the rows $1 belong to from being written anew until this transaction ends; what is being written just now is
-- left out.
SELECT {owner}
FROM {mirror} AS mirror
WHERE {of_type} AND {owner} IN (SELECT {owner} FROM {table} WHERE id = ANY ($1::bigint[]))
ORDER BY {owner}
FOR SHARE SKIP LOCKED
