-- Let no call to the model $1 start for $2 seconds. A longer pause that was asked for already holds.
UPDATE module_embeddings_model_quota
SET resume_at = greatest(resume_at, clock_timestamp() + make_interval(secs => $2))
WHERE model = $1
