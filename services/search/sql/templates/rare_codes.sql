 + CASE
               WHEN codes_held && ARRAY(
                   SELECT code
                   FROM candidate
                   CROSS JOIN unnest(codes_held) AS held (code)
                   GROUP BY code
                   HAVING count(*) <= {rare_code_texts}::integer
               ) THEN 1
               ELSE 0
           END
