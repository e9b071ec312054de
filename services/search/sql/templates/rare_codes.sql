 + CASE
               WHEN CASE WHEN dense_rank = 1 AND lexical_rank = 1 THEN {codes}::text[] ELSE codes_held END && ARRAY(
                   SELECT code
                   FROM candidate
                   CROSS JOIN unnest(codes_held) AS held (code)
                   GROUP BY code
                   HAVING count(*) <= {rare_code_texts}::integer AND NOT (
                       code = ANY ({codes_apart}::text[]) AND EXISTS (
                           SELECT
                           FROM candidate
                           CROSS JOIN unnest(codes_held) AS held (longer)
                           WHERE longer ~ (code || '\D') OR longer ~ ('\d' || code)
                       )
                   )
               ) THEN 1
               ELSE 0
           END
