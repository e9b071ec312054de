{dense_weight}::float8 * CASE WHEN high > low THEN least(greatest((score - low) / (high - low), 0), 1) ELSE 1 END
           + (1 - {dense_weight}::float8) * CASE WHEN bm25_score IS NULL THEN 0 ELSE least(bm25_score / ideal, 1) END
