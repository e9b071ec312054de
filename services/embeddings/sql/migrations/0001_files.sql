-- The mirror of files (state and work queue in one), their chunks, the embedding spaces, and the outbox.

CREATE EXTENSION IF NOT EXISTS vector;

CREATE TABLE module_embeddings_space (
    id                smallint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    name              text        NOT NULL UNIQUE,
    provider          text        NOT NULL,
    model             text        NOT NULL,
    native_dimensions integer     NOT NULL CHECK (native_dimensions BETWEEN 1 AND 768),
    convention        text        NOT NULL,
    state             text        NOT NULL CHECK (state IN ('ACTIVE', 'BUILDING', 'RETIRED')),
    created_at        timestamptz NOT NULL DEFAULT now()
);
CREATE UNIQUE INDEX module_embeddings_space_one_active ON module_embeddings_space (state) WHERE state = 'ACTIVE';

CREATE TABLE module_embeddings_files_file (
    file_id          bigint PRIMARY KEY,
    tenant_id        text        NOT NULL,
    name             text        NOT NULL,
    status           text        NOT NULL DEFAULT 'PENDING',
    generation       bigint      NOT NULL DEFAULT 1,
    revision         bigint      NOT NULL DEFAULT 0,
    outcome          text,
    outcome_reason   text,
    media_type       text,
    page_count       integer,
    stage            text,
    progress_done    integer     NOT NULL DEFAULT 0,
    progress_total   integer     NOT NULL DEFAULT 0,
    lease_token      uuid,
    lease_expires_at timestamptz,
    attempts         integer     NOT NULL DEFAULT 0,
    available_at     timestamptz NOT NULL DEFAULT now(),
    error_code       text,
    error_message    text,
    traceparent      text,
    requested_at     timestamptz NOT NULL DEFAULT now(),
    finished_at      timestamptz,
    updated_at       timestamptz NOT NULL DEFAULT now(),

    CONSTRAINT mirror_tenant_named CHECK (tenant_id <> ''),
    CONSTRAINT mirror_status_known CHECK (status IN ('PENDING', 'PROCESSING', 'COMPLETED', 'FAILED')),
    CONSTRAINT mirror_lease_while_processing CHECK (
        (status = 'PROCESSING') = (lease_token IS NOT NULL)
        AND (lease_token IS NULL) = (lease_expires_at IS NULL)
    ),
    CONSTRAINT mirror_completed_has_outcome CHECK (
        (status <> 'COMPLETED' OR outcome IS NOT NULL) AND (status <> 'COMPLETED' OR error_code IS NULL)
    ),
    CONSTRAINT mirror_outcome_known CHECK (outcome IN ('INDEXED', 'EMPTY')),
    CONSTRAINT mirror_empty_has_reason CHECK (outcome IS DISTINCT FROM 'EMPTY' OR outcome_reason IS NOT NULL),
    CONSTRAINT mirror_failed_has_error CHECK (status <> 'FAILED' OR error_code IS NOT NULL)
);

-- The queue: what may be claimed now, oldest first.
CREATE INDEX module_embeddings_files_file_pending ON module_embeddings_files_file (available_at, file_id)
    WHERE status = 'PENDING';
CREATE INDEX module_embeddings_files_file_leased ON module_embeddings_files_file (lease_expires_at)
    WHERE status = 'PROCESSING';

-- The reference makes an orphan impossible: a file that leaves the mirror takes its chunks along.
CREATE TABLE module_embeddings_file_chunk (
    id         bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    file_id    bigint      NOT NULL REFERENCES module_embeddings_files_file ON DELETE CASCADE,
    tenant_id  text        NOT NULL,
    position   integer     NOT NULL,
    page_from  integer,
    page_to    integer,
    char_start integer     NOT NULL,
    char_end   integer     NOT NULL,
    text       text        NOT NULL,
    text_hash  bytea       NOT NULL,
    space_id   smallint    NOT NULL REFERENCES module_embeddings_space,
    embedding  vector(768) NOT NULL,
    created_at timestamptz NOT NULL DEFAULT now(),

    CONSTRAINT chunk_position_unique UNIQUE (file_id, position),
    CONSTRAINT chunk_position_counts CHECK (position >= 0),
    CONSTRAINT chunk_pages_ordered CHECK (
        (page_from IS NULL) = (page_to IS NULL) AND page_from >= 1 AND page_from <= page_to
    ),
    CONSTRAINT chunk_offsets_ordered CHECK (char_start >= 0 AND char_start < char_end),
    CONSTRAINT chunk_has_text CHECK (text <> '')
);
CREATE INDEX module_embeddings_file_chunk_known_text ON module_embeddings_file_chunk (tenant_id, space_id, text_hash);
CREATE INDEX module_embeddings_file_chunk_embedding ON module_embeddings_file_chunk
    USING hnsw (embedding vector_cosine_ops);

-- Replacing a file's chunks leaves dead tuples in the graph, and a graph full of them answers short.
ALTER TABLE module_embeddings_file_chunk SET (autovacuum_vacuum_scale_factor = 0.02);

CREATE TABLE module_embeddings_outbox (
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
