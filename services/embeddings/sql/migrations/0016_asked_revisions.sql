-- Which revision of a file was asked for last, or read at its claim: an event of it that comes once more asks for nothing.
-- NULL where that was not noted, or the source of record did not have the file at the claim.
ALTER TABLE module_embeddings_files_file ADD COLUMN asked_revision bigint;
