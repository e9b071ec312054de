-- The spaces that were dropped and may still have vectors.
SELECT id FROM module_embeddings_space WHERE state = 'RETIRED' AND NOT emptied
