-- Give back the slot of the ticket $2 of the model $1. If its provider answered well ($3) it is out no more.
UPDATE module_embeddings_model_quota
SET under_way = under_way - $2::uuid::text,
    out_since = CASE WHEN NOT $3 THEN out_since END
WHERE model = $1
