-- Note that nothing is left of the dropped space $1.
UPDATE module_embeddings_space SET emptied = true WHERE id = $1 AND state = 'RETIRED'
