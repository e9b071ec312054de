-- Note that $2 texts were taken for the space $1: they use up a part of its rate.
UPDATE module_embeddings_space
SET used_until = greatest(used_until, now()) + make_interval(secs => 60.0 * $2::integer / texts_per_minute)
WHERE id = $1 AND texts_per_minute > 0
