-- The version of the index of the tenant $1.
SELECT coalesce((SELECT version FROM module_embeddings_index_version_read WHERE tenant_id = $1), 0);
