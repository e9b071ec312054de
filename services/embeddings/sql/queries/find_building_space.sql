-- The space that is built beside the active one, and in how many seconds its next texts may be taken.
SELECT id, name, provider, model, native_dimensions, convention, texts_per_minute,
       greatest(0, extract(epoch FROM used_until - now()))::float8 AS wait_seconds
FROM module_embeddings_space
WHERE state = 'BUILDING'
