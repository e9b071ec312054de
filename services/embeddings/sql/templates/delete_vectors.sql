-- Remove vectors of one type: they are of a content that is no more.
DELETE FROM {table} WHERE entity_id = ANY ($1::bigint[])
