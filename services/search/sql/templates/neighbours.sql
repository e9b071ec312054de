own_score + CASE
               WHEN length(weighed.text) < {neighbour_characters}::integer THEN {neighbour_weight}::float8 * coalesce(
                   (
                       SELECT sum(beside.own_score)
                       FROM weighed AS beside
                       WHERE beside.file_id = weighed.file_id
                         AND beside.position IN (weighed.position - 1, weighed.position + 1)
                   ),
                   0
               )
               ELSE 0
           END
