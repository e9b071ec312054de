-- Record a space, active if there is no active one yet.
INSERT INTO module_embeddings_space (name, provider, model, native_dimensions, convention, state, activated_at)
SELECT $1, $2, $3, $4, $5, 'ACTIVE', now()
WHERE NOT EXISTS (SELECT FROM module_embeddings_space WHERE state = 'ACTIVE')
ON CONFLICT DO NOTHING
