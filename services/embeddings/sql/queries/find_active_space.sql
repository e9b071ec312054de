-- The space that new vectors belong to and searches use.
SELECT id, name, provider, model, native_dimensions, convention
FROM module_embeddings_space
WHERE state = 'ACTIVE'
