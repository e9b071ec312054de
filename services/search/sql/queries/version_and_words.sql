-- The version of the index of the tenant $1, and the words of the question $2 with the forms that they are looked for in:
-- those of the languages of the tenant's texts in the space $3 and of its resources, each language a look into an index; and
-- the codes $4 that it has in parts.
WITH asked AS MATERIALIZED (
    SELECT word, form
    FROM cauce_question_forms(
        $2,
        ARRAY(
            SELECT language
            FROM unnest(cauce_languages()) AS known (language)
            WHERE language IN (
                (
                    SELECT chunk.language
                    FROM module_embeddings_chunk_read AS chunk
                    WHERE tenant_id = $1 AND space_id = $3 AND chunk.language >= known.language
                    ORDER BY chunk.language
                    LIMIT 1
                ),
                (
                    SELECT stored.language
                    FROM module_embeddings_resource_lexemes_read AS stored
                    WHERE tenant_id = $1 AND stored.language >= known.language
                    ORDER BY stored.language
                    LIMIT 1
                )
            )
        )
    )
)
SELECT coalesce((SELECT version FROM module_embeddings_index_version_read WHERE tenant_id = $1), 0) AS version,
       coalesce(array_agg(word), '{}') AS words, coalesce(array_agg(form), '{}') AS forms,
       coalesce(string_agg(DISTINCT form, ' '), '') AS forms_asked
FROM (
    SELECT word, form FROM asked
    UNION ALL
    SELECT DISTINCT NULL, code FROM unnest($4::text[]) AS apart (code) WHERE code NOT IN (SELECT form FROM asked)
) AS looked_for;
