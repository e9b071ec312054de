-- How many seconds the model $1 has to be left alone because its provider is out, and with which fault, or because it asked
-- for it, and how many until the rates allow a call of $2 and $3 seconds of them, of which $4 may be used ahead.
SELECT CASE WHEN out_since IS NULL THEN 0 ELSE greatest(0, extract(epoch FROM out_until - clock_timestamp())) END::float8
           AS out,
       out_fault,
       greatest(0, extract(epoch FROM resume_at - clock_timestamp()))::float8 AS asked,
       greatest(
           0,
           extract(epoch FROM requests_until - clock_timestamp())::float8 - greatest(0, $4::float8 - $2::float8),
           extract(epoch FROM tokens_until - clock_timestamp())::float8 - greatest(0, $4 - $3::float8)
       )::float8 AS paced
FROM module_embeddings_model_quota
WHERE model = $1
