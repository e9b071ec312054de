-- Keep the vector $4 of the text with the hash $3 in the space $2, for the tenant $1.
INSERT INTO module_search_query_vector (tenant_id, space, text_hash, embedding) VALUES ($1, $2, $3, $4)
ON CONFLICT DO NOTHING;
