-- Extend the lease $1 by $2 seconds.
UPDATE module_embeddings_space_lease SET expires_at = now() + make_interval(secs => $2) WHERE token = $1
