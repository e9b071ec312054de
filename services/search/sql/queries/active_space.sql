-- The embedding space that answers searches, as the embeddings service recorded it.
SELECT id, name, provider, model, native_dimensions, convention
FROM module_embeddings_space
WHERE state = 'ACTIVE';
