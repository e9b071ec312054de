own_score + CASE
               WHEN place <= {candidates} AND characters < {neighbour_characters}::integer
               THEN {neighbour_weight}::float8 * coalesce(
                   sum(CASE WHEN characters < {neighbour_characters}::integer THEN own_score END) OVER (
                       PARTITION BY file_id ORDER BY position RANGE BETWEEN 1 PRECEDING AND 1 FOLLOWING EXCLUDE CURRENT ROW
                   ),
                   0
               )
               ELSE 0
           END
