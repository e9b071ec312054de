-- What all workers together use of a provider's model, and what fair turns at the queues need.

-- A rate is the moment up to which it is used: each call moves that on by what it takes at the allowed rate. Slots are
-- tickets with the second (of the epoch) at which they end by themselves.
CREATE TABLE module_embeddings_model_quota (
    model          text PRIMARY KEY,
    requests_until timestamptz NOT NULL DEFAULT now(),
    tokens_until   timestamptz NOT NULL DEFAULT now(),
    resume_at      timestamptz NOT NULL DEFAULT now(),
    under_way      jsonb       NOT NULL DEFAULT '{}'
) WITH (fillfactor = 50);
