ARRAY(
                   SELECT code
                   FROM unnest({codes}::text[]) AS asked (code)
                   WHERE lexical_place <= {candidates} AND strpos(' ' || chunk.lexemes || ' ', ' ' || code || ' ') > 0
               )
