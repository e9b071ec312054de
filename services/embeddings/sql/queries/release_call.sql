-- Give back the slot of the ticket $2 of the model $1.
UPDATE module_embeddings_model_quota SET under_way = under_way - $2::uuid::text WHERE model = $1
