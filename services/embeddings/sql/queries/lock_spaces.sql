-- The active space and the one beside it; whoever writes in either of them waits until this transaction ends.
SELECT id, name, state, activated_at
FROM module_embeddings_space
WHERE state <> 'RETIRED'
ORDER BY id
FOR UPDATE
