-- The mirror of resources of every type (state and work queue in one), and who read whom.

CREATE TABLE module_embeddings_resource (
    entity_type        text        NOT NULL,
    entity_id          bigint      NOT NULL,
    tenant_id          text        NOT NULL,
    name               text        NOT NULL,
    status             text        NOT NULL DEFAULT 'PENDING',
    generation         bigint      NOT NULL DEFAULT 1,
    claimed_generation bigint,
    revision           bigint,
    recipe             text,
    space_id           smallint REFERENCES module_embeddings_space,
    lease_token        uuid,
    lease_expires_at   timestamptz,
    attempts           integer     NOT NULL DEFAULT 0,
    available_at       timestamptz NOT NULL DEFAULT now(),
    error_code         text,
    error_message      text,
    traceparent        text,
    requested_at       timestamptz NOT NULL DEFAULT now(),
    finished_at        timestamptz,
    updated_at         timestamptz NOT NULL DEFAULT now(),

    PRIMARY KEY (entity_type, entity_id),
    CONSTRAINT mirror_tenant_named CHECK (tenant_id <> ''),
    CONSTRAINT mirror_status_known CHECK (status IN ('PENDING', 'PROCESSING', 'COMPLETED', 'FAILED')),
    CONSTRAINT mirror_lease_while_processing CHECK (
        (status = 'PROCESSING') = (lease_token IS NOT NULL)
        AND (lease_token IS NULL) = (lease_expires_at IS NULL)
        AND (lease_token IS NULL) = (claimed_generation IS NULL)
    ),
    CONSTRAINT mirror_completed_has_space CHECK (
        status <> 'COMPLETED'
        OR (revision IS NOT NULL AND recipe IS NOT NULL AND space_id IS NOT NULL AND error_code IS NULL)
    ),
    CONSTRAINT mirror_failed_has_error CHECK (status <> 'FAILED' OR error_code IS NOT NULL)
);

-- The queue: what may be claimed now, oldest first, by type.
CREATE INDEX module_embeddings_resource_pending ON module_embeddings_resource (entity_type, available_at, entity_id)
    WHERE status = 'PENDING';
CREATE INDEX module_embeddings_resource_leased ON module_embeddings_resource (lease_expires_at)
    WHERE status = 'PROCESSING';

-- Every reconcile touches its row three times; none of it may wait for the default threshold of a fifth of the table.
ALTER TABLE module_embeddings_resource SET (autovacuum_vacuum_scale_factor = 0.05);

-- The source may not exist (yet): it is what the dependent looked for, whether it found it or not.
CREATE TABLE module_embeddings_dependency (
    dependent_type text   NOT NULL,
    dependent_id   bigint NOT NULL,
    source_type    text   NOT NULL,
    source_id      bigint NOT NULL,

    PRIMARY KEY (dependent_type, dependent_id, source_type, source_id),
    FOREIGN KEY (dependent_type, dependent_id) REFERENCES module_embeddings_resource ON DELETE CASCADE
);
CREATE INDEX module_embeddings_dependency_source ON module_embeddings_dependency (source_type, source_id);
