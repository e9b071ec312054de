-- Note why the building of the space $1 does not get on, or with NULL that it does.
UPDATE module_embeddings_space SET fault = $2 WHERE id = $1 AND state = 'BUILDING' AND fault IS DISTINCT FROM $2
