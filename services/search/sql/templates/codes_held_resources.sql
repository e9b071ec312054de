ARRAY(
                   SELECT code
                   FROM unnest({codes}::text[]) AS asked (code)
                   WHERE lexical_place <= {candidates} AND EXISTS (
                       SELECT
                       FROM module_embeddings_resource_lexemes_read AS words
                       WHERE words.entity_type = stored.entity_type AND words.entity_id = stored.entity_id
                         AND strpos(' ' || words.lexemes || ' ', ' ' || code || ' ') > 0
                   )
               )
