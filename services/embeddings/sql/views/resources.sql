-- module_embeddings_resource_read: what the embeddings service publishes of a resource's processing.
CREATE OR REPLACE VIEW module_embeddings_resource_read AS
SELECT entity_type, entity_id, tenant_id, name, status, revision, space_id, attempts, error_code, error_message,
       requested_at, finished_at, updated_at
FROM module_embeddings_resource;
