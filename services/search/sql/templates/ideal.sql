-- What a passage of mean length would have with every word of the question in it once. A form is weighed by its
        -- score in a text of itself alone, which is 1.23 times that; a word that no passage has is the rarest there is.
        SELECT sum(weight) AS ideal
        FROM (
            SELECT CASE
                       WHEN word IS NULL THEN max(weight)
                       ELSE coalesce(
                           nullif(max(weight), 0),
                           greatest(
                               max(max(weight)) OVER (),
                               (
                                   SELECT ln(2 + 2 * greatest(reltuples, 0))
                                   FROM pg_class
                                   WHERE oid = to_regclass({lexical_index})
                               )
                           )
                       )
                   END AS weight
            FROM (
                SELECT word, form, -(form <@> to_bm25query(form, {lexical_index}::text)) / 1.23 AS weight
                FROM unnest({words}::text[], {forms}::text[]) AS asked (word, form)
            ) AS forms
            GROUP BY word, CASE WHEN word IS NULL THEN form END
        ) AS words
