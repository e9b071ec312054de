-- Take an idempotency key for a file. What is returned is of whoever has it: another file when this is a repeat.
INSERT INTO module_files_request AS request (tenant_id, idempotency_key, file_id, fingerprint)
VALUES ($1, $2, $3, $4)
ON CONFLICT (tenant_id, idempotency_key) DO UPDATE SET file_id = request.file_id
RETURNING file_id, fingerprint
