-- The spaces that have vectors: the active one, and the one beside it.
SELECT id, name, provider, model, native_dimensions, convention, state, texts_per_minute, fault, begun_at, activated_at
FROM module_embeddings_space
WHERE state <> 'RETIRED'
ORDER BY state
