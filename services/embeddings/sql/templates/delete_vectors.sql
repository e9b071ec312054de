-- Remove vectors of one type: they are of a content that is no more.
WITH removed AS (
    DELETE FROM {table} WHERE entity_id = ANY ($1::bigint[]) RETURNING entity_type, entity_id
)
DELETE FROM module_embeddings_resource_lexemes AS lexemes
USING removed
WHERE lexemes.entity_type = removed.entity_type AND lexemes.entity_id = removed.entity_id
