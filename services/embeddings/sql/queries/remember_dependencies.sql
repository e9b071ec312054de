-- Note that the resources $3 of type $1 read the resources ($4, $5), where the lease $2 still holds. Returns those of
-- $3 that read something new: a change of it may have gone by before it was known that they read it.
WITH added AS (
    INSERT INTO module_embeddings_dependency (dependent_type, dependent_id, source_type, source_id)
    SELECT $1, edge.dependent_id, edge.source_type, edge.source_id
    FROM unnest($3::bigint[], $4::text[], $5::bigint[]) AS edge (dependent_id, source_type, source_id)
    JOIN module_embeddings_resource AS mirror
      ON mirror.entity_type = $1 AND mirror.entity_id = edge.dependent_id AND mirror.lease_token = $2
    ORDER BY edge.dependent_id
    FOR KEY SHARE OF mirror
    ON CONFLICT DO NOTHING
    RETURNING dependent_id
)
SELECT DISTINCT dependent_id FROM added
