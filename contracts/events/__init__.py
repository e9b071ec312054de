"""Events between services: one envelope, thin payloads, a topic table, schemas and golden examples."""
