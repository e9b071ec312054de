-- What all workers together use of a provider's model, and what fair turns at the queues need.

-- A rate is the moment up to which it is used: each call moves that on by what it takes at the allowed rate. Slots are
-- tickets with the second (of the epoch) at which they end by themselves.
CREATE TABLE module_embeddings_model_quota (
    model          text PRIMARY KEY,
    requests_until timestamptz NOT NULL DEFAULT now(),
    tokens_until   timestamptz NOT NULL DEFAULT now(),
    resume_at      timestamptz NOT NULL DEFAULT now(),
    under_way      jsonb       NOT NULL DEFAULT '{}'
) WITH (fillfactor = 50);

-- Whether a file is so large that it may not take a worker's last place.
ALTER TABLE module_embeddings_files_file ADD COLUMN large boolean NOT NULL DEFAULT false;

-- The queues again: what may be claimed now, oldest first, by tenant, so that tenants can take turns.
DROP INDEX module_embeddings_files_file_pending;
CREATE INDEX module_embeddings_files_file_pending
    ON module_embeddings_files_file (tenant_id, large, available_at, file_id) WHERE status = 'PENDING';
DROP INDEX module_embeddings_resource_pending;
CREATE INDEX module_embeddings_resource_pending
    ON module_embeddings_resource (tenant_id, entity_type, available_at, entity_id) WHERE status = 'PENDING';
