-- The revision of which the readers of a resource were told; NULL where that was before this was noted.

ALTER TABLE module_embeddings_resource ADD COLUMN announced_revision bigint;
