-- module_embeddings_index_version_read: which version of a tenant's index a snapshot sees; none before its first change.
CREATE OR REPLACE VIEW module_embeddings_index_version_read AS
SELECT tenant_id, sum(changes)::bigint AS version
FROM module_embeddings_index_change
GROUP BY tenant_id;
