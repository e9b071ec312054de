-- Put the space $1 into the state $2.
UPDATE module_embeddings_space
SET state = $2,
    fault = NULL,
    activated_at = CASE WHEN $2 = 'ACTIVE' THEN now() ELSE activated_at END
WHERE id = $1
