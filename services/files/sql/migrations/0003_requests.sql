-- What was asked for under a client's key: a repeat finds the file that the first request made.
CREATE TABLE module_files_request (
    tenant_id       text   NOT NULL,
    idempotency_key text   NOT NULL,
    file_id         bigint NOT NULL REFERENCES module_files_file ON DELETE CASCADE,
    fingerprint     bytea  NOT NULL,
    PRIMARY KEY (tenant_id, idempotency_key)
);
CREATE INDEX module_files_request_file ON module_files_request (file_id);
