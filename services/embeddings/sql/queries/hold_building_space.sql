-- Whether the space $1 is built, and goes on being built until this transaction ends.
SELECT id FROM module_embeddings_space WHERE id = $1 AND state = 'BUILDING' FOR SHARE
