-- Note that the provider of the model $1 is out with the fault $2: no call may start for $3 seconds, doubled for each trial in
-- vain, at most $4, and less by chance. While it is left alone nothing is added: calls that began before tell nothing new.
UPDATE module_embeddings_model_quota
SET out_since = coalesce(out_since, clock_timestamp()),
    out_trials = CASE WHEN out_since IS NULL THEN 0 ELSE out_trials + 1 END,
    out_until = clock_timestamp() + make_interval(
        secs => least($4, $3 * 2 ^ CASE WHEN out_since IS NULL THEN 0 ELSE least(out_trials + 1, 30) END)
            * (0.5 + random() / 2)
    ),
    out_fault = $2
WHERE model = $1 AND (out_since IS NULL OR out_until <= clock_timestamp())
