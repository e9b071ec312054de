-- What the files service may do: write its own tables, read the status that the embeddings service publishes
-- (that grant stands with the view's owner). Re-applied at every migration.
GRANT USAGE ON SCHEMA public TO cauce_files;
GRANT SELECT, INSERT, UPDATE, DELETE
ON module_files_file, module_files_request, module_files_garbage, module_files_outbox TO cauce_files;
