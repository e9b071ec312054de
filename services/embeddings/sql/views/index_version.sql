-- module_embeddings_index_version_read: which version of a tenant's index a snapshot sees; none before its first change.
-- Another one when another space becomes active, whose rows did not count before.
CREATE OR REPLACE VIEW module_embeddings_index_version_read AS
SELECT tenant_id,
       sum(changes)::bigint + (
           SELECT coalesce(max(extract(epoch FROM activated_at) * 1000000), 0)::bigint
           FROM module_embeddings_space
           WHERE state = 'ACTIVE'
       ) AS version
FROM module_embeddings_index_change
GROUP BY tenant_id;
