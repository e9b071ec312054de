-- The version of the index of the tenant $1, and the words of the question $2 with the forms that they are looked for in.
SELECT coalesce((SELECT version FROM module_embeddings_index_version_read WHERE tenant_id = $1), 0) AS version,
       coalesce(array_agg(word), '{}') AS words, coalesce(array_agg(form), '{}') AS forms,
       coalesce(string_agg(DISTINCT form, ' '), '') AS forms_asked
FROM cauce_question_forms($2);
