{dense_weight}::float8 * CASE
               WHEN place > {candidates} THEN 0
               WHEN high > low THEN least(greatest((score - low) / (high - low), 0), 1)
               ELSE 1
           END
           + (1 - {dense_weight}::float8)
           * CASE WHEN lexical_place <= {candidates} THEN least(bm25_score / ideal, 1) ELSE 0 END
