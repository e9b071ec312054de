-- Vectors of a file that is under way, written call by call: whoever has to begin again does not pay for them again.
-- Unlogged: what is lost with the server is paid for once more, and nothing else depends on it.
CREATE UNLOGGED TABLE module_embeddings_kept_vector (
    file_id   bigint      NOT NULL REFERENCES module_embeddings_files_file ON DELETE CASCADE,
    space_id  smallint    NOT NULL REFERENCES module_embeddings_space,
    text_hash bytea       NOT NULL,
    embedding vector(768) NOT NULL,

    PRIMARY KEY (file_id, space_id, text_hash)
);
