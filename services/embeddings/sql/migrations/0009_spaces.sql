-- Two embedding spaces side by side: a text has a row for its vector in each, and each space has vector indexes of its
-- own (views/spaces.sql), so that the one that is built does not stand in the way of the one that is searched.

-- texts_per_minute bounds the building of a space, without end where it is NULL, not at all where it is 0; used_until is
-- the moment up to which that is used. A space
-- that was active can be made active again; one that was dropped is emptied after that.
ALTER TABLE module_embeddings_space
    ADD COLUMN texts_per_minute integer CHECK (texts_per_minute >= 0),
    ADD COLUMN used_until       timestamptz NOT NULL DEFAULT now(),
    ADD COLUMN fault            text,
    ADD COLUMN emptied          boolean     NOT NULL DEFAULT false,
    ADD COLUMN begun_at         timestamptz,
    ADD COLUMN activated_at     timestamptz;
UPDATE module_embeddings_space SET activated_at = created_at WHERE state = 'ACTIVE';
CREATE UNIQUE INDEX module_embeddings_space_one_building ON module_embeddings_space (state) WHERE state = 'BUILDING';

ALTER TABLE module_embeddings_file_chunk
    DROP CONSTRAINT chunk_position_unique,
    ADD CONSTRAINT chunk_position_unique UNIQUE (file_id, position, space_id);
DROP INDEX module_embeddings_file_chunk_embedding;

-- Which rows of the active space somebody makes a vector of the other one for.
CREATE TABLE module_embeddings_space_lease (
    table_name text        NOT NULL,
    row_id     bigint      NOT NULL,
    token      uuid        NOT NULL,
    expires_at timestamptz NOT NULL,

    PRIMARY KEY (table_name, row_id)
);
CREATE INDEX module_embeddings_space_lease_token ON module_embeddings_space_lease (token);
