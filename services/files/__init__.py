"""The source of record: files and their bytes, the catalogue of resources. Writes the outbox."""
