-- Vectors of questions that were asked, so that none is computed twice, in any process. The text itself is not kept.
CREATE TABLE module_search_query_vector (
    tenant_id text        NOT NULL,
    space     text        NOT NULL CHECK (space <> ''),
    text_hash bytea       NOT NULL CHECK (octet_length(text_hash) = 32),
    embedding vector(768) NOT NULL,
    used_at   timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (tenant_id, space, text_hash)
);

CREATE INDEX module_search_query_vector_used ON module_search_query_vector (used_at);
