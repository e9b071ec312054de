coalesce(
               {dense_weight}::float8
               / ({rank_constant}::float8 + CASE WHEN dense_place <= {candidates} THEN dense_rank END),
               0
           )
           + coalesce(
               (1 - {dense_weight}::float8)
               / ({rank_constant}::float8 + CASE WHEN lexical_place <= {candidates} THEN lexical_rank END),
               0
           )
