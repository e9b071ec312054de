-- Reserve a call to the model $1 under the ticket $2, which holds a slot for $3 seconds. At the allowed rates the call
-- takes $4 seconds of requests and $5 of tokens, of which $6 may be used ahead; $7 calls may be under way, and one alone
-- while the provider is out: a trial, which is what this returns. Nothing comes back when the call has to wait. The row is locked before anything is compared, so that no two take the last place.
INSERT INTO module_embeddings_model_quota AS quota (model, requests_until, tokens_until, under_way)
VALUES (
    $1,
    clock_timestamp() + make_interval(secs => $4),
    clock_timestamp() + make_interval(secs => $5),
    jsonb_build_object($2::uuid::text, extract(epoch FROM clock_timestamp()) + $3::float8)
)
ON CONFLICT (model) DO UPDATE
SET requests_until = greatest(quota.requests_until, clock_timestamp()) + make_interval(secs => $4),
    tokens_until = greatest(quota.tokens_until, clock_timestamp()) + make_interval(secs => $5),
    under_way = jsonb_build_object($2::uuid::text, extract(epoch FROM clock_timestamp()) + $3::float8) || coalesce(
        (
            SELECT jsonb_object_agg(ticket, ends)
            FROM jsonb_each(quota.under_way) AS slot (ticket, ends)
            WHERE ends::float8 > extract(epoch FROM clock_timestamp())
        ),
        '{}'
    )
WHERE quota.resume_at <= clock_timestamp()
  AND (quota.out_since IS NULL OR quota.out_until <= clock_timestamp())
  AND quota.requests_until <= clock_timestamp() + make_interval(secs => greatest(0, $6::float8 - $4))
  AND quota.tokens_until <= clock_timestamp() + make_interval(secs => greatest(0, $6 - $5))
  AND CASE WHEN quota.out_since IS NULL THEN $7 ELSE 1 END > (
      SELECT count(*)
      FROM jsonb_each(quota.under_way) AS slot (ticket, ends)
      WHERE ends::float8 > extract(epoch FROM clock_timestamp())
  )
RETURNING out_since IS NOT NULL AS is_trial
