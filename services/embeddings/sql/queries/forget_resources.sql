-- Remove the resources $3 of type $1 that the source of record had no more, if the lease $2 holds and nothing was asked
-- for since: one that was made again meanwhile stays. By reference their vectors and dependencies go along.
WITH held AS (
    SELECT entity_id
    FROM module_embeddings_resource
    WHERE entity_type = $1 AND entity_id = ANY ($3::bigint[]) AND lease_token = $2
    ORDER BY entity_id
    FOR UPDATE
)
DELETE FROM module_embeddings_resource AS mirror
USING held
WHERE mirror.entity_type = $1 AND mirror.entity_id = held.entity_id
  AND mirror.generation = mirror.claimed_generation
RETURNING mirror.entity_id, mirror.tenant_id, mirror.name
