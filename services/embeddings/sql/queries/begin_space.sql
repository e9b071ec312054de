-- Build a space beside the active one, or go on with it, with at most $6 texts a minute.
INSERT INTO module_embeddings_space AS known
    (name, provider, model, native_dimensions, convention, texts_per_minute, state, begun_at)
VALUES ($1, $2, $3, $4, $5, $6, 'BUILDING', now())
ON CONFLICT (name) DO UPDATE
SET state = 'BUILDING',
    texts_per_minute = excluded.texts_per_minute,
    used_until = now(),
    fault = NULL,
    emptied = false,
    activated_at = CASE WHEN known.state = 'BUILDING' THEN known.activated_at END,
    begun_at = CASE WHEN known.state = 'BUILDING' THEN known.begun_at ELSE now() END
