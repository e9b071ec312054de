-- The words of each of the texts $1 that are no common words of the languages known, with the forms that they are found in
-- elsewhere; pairs of signs for words in scripts without spaces. Codes and numbers are left out.
SELECT number, coalesce(word, form) AS word, array_agg(form) AS forms
FROM unnest($1::text[]) WITH ORDINALITY AS texts (content, number)
CROSS JOIN LATERAL cauce_question_forms(content)
WHERE CASE
          WHEN word IS NULL THEN form ~ ('[' || cauce_unspaced() || ']')
          ELSE length(word) > 1 AND word !~ '[0-9]' AND NOT cauce_marks() ? word
      END
GROUP BY number, coalesce(word, form);
