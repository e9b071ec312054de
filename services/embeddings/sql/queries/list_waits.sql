-- What is to be said of the models whose provider is out, or has asked to be left alone.
SELECT model,
       CASE WHEN out_since IS NOT NULL
           THEN format(
               'out since %s, tried %s times since, again in %s s: %s',
               to_char(out_since AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS"Z"'), out_trials,
               greatest(0, ceil(extract(epoch FROM out_until - clock_timestamp()))), out_fault
           )
           ELSE format('asked to be left alone for %s s', ceil(extract(epoch FROM resume_at - clock_timestamp())))
       END AS said
FROM module_embeddings_model_quota
WHERE out_since IS NOT NULL OR resume_at > clock_timestamp()
ORDER BY model
