coalesce({dense_weight}::float8 / ({rank_constant}::float8 + dense_rank), 0)
           + coalesce((1 - {dense_weight}::float8) / ({rank_constant}::float8 + lexical_rank), 0)
