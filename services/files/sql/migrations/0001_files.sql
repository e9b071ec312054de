-- The file aggregate, its outbox, and the storage keys that wait to be deleted.

CREATE TABLE module_files_file (
    id              bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    tenant_id       text        NOT NULL,
    name            text        NOT NULL,
    media_type      text        NOT NULL,
    metadata        jsonb       NOT NULL DEFAULT '{}',
    state           text        NOT NULL DEFAULT 'UPLOADING',
    revision        bigint      NOT NULL DEFAULT 0,
    size_bytes      bigint,
    sha256          bytea,
    storage_key     text,
    error_code      text,
    error_message   text,
    upload_deadline timestamptz,
    created_at      timestamptz NOT NULL DEFAULT now(),
    updated_at      timestamptz NOT NULL DEFAULT now(),

    CONSTRAINT file_tenant_named CHECK (tenant_id <> ''),
    CONSTRAINT file_name_length CHECK (char_length(name) BETWEEN 1 AND 255),
    CONSTRAINT file_metadata_is_object CHECK (jsonb_typeof(metadata) = 'object'),
    CONSTRAINT file_state_known CHECK (state IN ('UPLOADING', 'STORED', 'FAILED')),
    CONSTRAINT file_stored_has_bytes CHECK (
        (state = 'STORED') = (storage_key IS NOT NULL AND size_bytes IS NOT NULL AND sha256 IS NOT NULL)
    ),
    CONSTRAINT file_uploading_has_deadline CHECK ((state = 'UPLOADING') = (upload_deadline IS NOT NULL)),
    CONSTRAINT file_failed_has_error CHECK ((state = 'FAILED') = (error_code IS NOT NULL))
);

CREATE INDEX module_files_file_tenant ON module_files_file (tenant_id, id DESC);
CREATE INDEX module_files_file_deadline ON module_files_file (upload_deadline) WHERE state = 'UPLOADING';

-- A key stands here from before its first byte is stored until the file's row points to it, and again when no
-- row does any more. So no crash leaves an object that nobody knows of. Once doomed a key is never pointed to:
-- its object may be gone already.
CREATE TABLE module_files_garbage (
    storage_key  text PRIMARY KEY,
    delete_after timestamptz NOT NULL,
    doomed       boolean     NOT NULL DEFAULT false
);
CREATE INDEX module_files_garbage_due ON module_files_garbage (delete_after);

-- Debezium's event router reads the same columns, should a fleet prefer it to the relay.
CREATE TABLE module_files_outbox (
    position       bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    id             uuid        NOT NULL UNIQUE,
    topic          text        NOT NULL,
    aggregate_type text        NOT NULL,
    aggregate_id   text        NOT NULL,
    type           text        NOT NULL,
    payload        jsonb       NOT NULL,
    headers        jsonb       NOT NULL,
    created_at     timestamptz NOT NULL DEFAULT clock_timestamp()
);
