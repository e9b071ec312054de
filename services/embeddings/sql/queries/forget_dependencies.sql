-- Remove from the resources $2 of type $1 whatever they do not read any more: all but ($3 reads $4, $5).
DELETE FROM module_embeddings_dependency AS known
WHERE known.dependent_type = $1
  AND known.dependent_id = ANY ($2::bigint[])
  AND NOT EXISTS (
      SELECT FROM unnest($3::bigint[], $4::text[], $5::bigint[]) AS edge (dependent_id, source_type, source_id)
      WHERE edge.dependent_id = known.dependent_id
        AND edge.source_type = known.source_type
        AND edge.source_id = known.source_id
  )
