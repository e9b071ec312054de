-- Give back the rows under the lease $1, but for $2, which are left alone until it runs out.
DELETE FROM module_embeddings_space_lease WHERE token = $1 AND row_id <> ALL ($2::bigint[])
