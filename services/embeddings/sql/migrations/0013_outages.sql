-- Whether the provider of a model is out: since when, until when it is left alone, how often it was tried in vain, and what
-- it said last. Out or not is out_since alone.
ALTER TABLE module_embeddings_model_quota
    ADD COLUMN out_since  timestamptz,
    ADD COLUMN out_until  timestamptz,
    ADD COLUMN out_trials integer NOT NULL DEFAULT 0,
    ADD COLUMN out_fault  text,
    ADD CONSTRAINT quota_outage_whole CHECK (out_since IS NULL OR (out_until IS NOT NULL AND out_fault IS NOT NULL));

-- What providers asked for before there was a bound to it.
UPDATE module_embeddings_model_quota SET resume_at = now() WHERE resume_at > now() + interval '5 minutes';
