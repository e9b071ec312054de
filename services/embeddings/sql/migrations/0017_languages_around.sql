-- The language of a passage that its own words do not tell is that of the passages around it. What was told before is told
-- again file by file (sql/queries/renew_languages.sql). And a question is asked without its language's commonest words.

-- The votes of a text: two of each of a language's commonest words, one of an ending; how many of its words are such
-- commonest words; and in a row for und how many words there are at all.
CREATE FUNCTION cauce_votes(content text)
RETURNS TABLE (language text, votes numeric, common numeric, words numeric)
LANGUAGE sql IMMUTABLE PARALLEL SAFE
BEGIN ATOMIC
    WITH words AS MATERIALIZED (
        SELECT lexeme AS word, cardinality(positions) AS times
        FROM unnest(to_tsvector('pg_catalog.simple', cauce_normal(content)))
        WHERE lexeme !~ '[0-9]'
    )
    SELECT language, sum(times * weight)::numeric, coalesce(sum(times) FILTER (WHERE weight = 2), 0)::numeric, 0::numeric
    FROM (
        SELECT word AS mark, times, 2 AS weight FROM words
        UNION ALL
        SELECT '-' || right(word, 2), times, 1 FROM words WHERE length(word) >= 4
    ) AS cast_by
    CROSS JOIN LATERAL jsonb_array_elements_text(cauce_marks() -> mark) AS language
    GROUP BY language
    UNION ALL
    SELECT 'und', 0, 0, coalesce(sum(times), 0) FROM words;
END;

-- The language with the most votes, if it is one alone and an eighth of all words are of its commonest; else und.
CREATE FUNCTION cauce_prevailing(languages text[], votes numeric[], common numeric[], words numeric) RETURNS text
LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN coalesce(
    (
        SELECT min(of_one.language)
        FROM unnest(languages, votes, common) AS of_one (language, votes, common)
        WHERE of_one.votes = (SELECT max(vote) FROM unnest(cauce_prevailing.votes) AS vote)
        HAVING count(*) = 1 AND min(of_one.common) * 8 >= words
    ),
    'und'
);

CREATE OR REPLACE FUNCTION cauce_language(content text) RETURNS text
LANGUAGE plpgsql IMMUTABLE STRICT PARALLEL SAFE
SET search_path FROM CURRENT
SET plan_cache_mode = 'force_generic_plan'
AS $$
DECLARE
    told text;
BEGIN
    SELECT cauce_prevailing(array_agg(language), array_agg(votes), array_agg(common), sum(words)) INTO told
    FROM cauce_votes(content);
    RETURN told;
END;
$$;

-- The letters that a language's commonest words and endings are written in.
CREATE FUNCTION cauce_letters(language text) RETURNS text
LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE
RETURN (
    SELECT coalesce(string_agg(DISTINCT letter, ''), '')
    FROM jsonb_each(cauce_marks()) AS known (mark, languages)
    CROSS JOIN LATERAL string_to_table(ltrim(mark, '-'), NULL) AS letter
    WHERE languages ? language
);

-- Which of the passages of a file, in their order and counted from 1, are in what language though their own words do not
-- tell it: in the one that prevails among the eight before and the eight after, if no language has more votes in the passage,
-- at most sixteen of its words, and eight for each of the language's commonest, say nothing, and it is in its letters.
CREATE FUNCTION cauce_languages_around(texts text[]) RETURNS TABLE (place bigint, language text)
LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE
SET search_path FROM CURRENT
AS $$
    WITH cast_vote AS MATERIALIZED (
        SELECT passage.place, vote.language, vote.votes, vote.common, vote.words
        FROM unnest(texts) WITH ORDINALITY AS passage (content, place)
        CROSS JOIN LATERAL cauce_votes(content) AS vote
    ),
    untold AS MATERIALIZED (
        SELECT place, max(votes) AS most, sum(words) AS words
        FROM cast_vote
        GROUP BY place
        HAVING sum(words) > 0
           AND cauce_prevailing(array_agg(language), array_agg(votes), array_agg(common), sum(words)) = 'und'
    ),
    around AS (
        SELECT place, cauce_prevailing(array_agg(language), array_agg(votes), array_agg(common), sum(words)) AS language
        FROM (
            SELECT untold.place, near.language, sum(near.votes) AS votes, sum(near.common) AS common,
                   sum(near.words) AS words
            FROM untold
            CROSS JOIN LATERAL generate_series(untold.place - 8, untold.place + 8) AS beside
            JOIN cast_vote AS near ON near.place = beside
            GROUP BY untold.place, near.language
        ) AS pooled
        GROUP BY place
    )
    SELECT untold.place, around.language
    FROM untold
    JOIN around ON around.place = untold.place AND around.language <> 'und'
    JOIN unnest(texts) WITH ORDINALITY AS passage (content, place) ON passage.place = untold.place
    LEFT JOIN cast_vote AS own ON own.place = untold.place AND own.language = around.language
    CROSS JOIN LATERAL (
        SELECT regexp_replace(lower(cauce_normal(content)), '[^[:alpha:]]', '', 'g') AS written
    ) AS letters
    WHERE coalesce(own.votes, 0) >= untold.most
      AND (coalesce(own.common, 0) + 2) * 8 >= untold.words
      AND 2 * length(translate(written, cauce_letters(around.language), '')) <= length(written)
$$;

-- A language's commonest words as it inflects them, without its stop words, of which nothing is left.
DO $$
BEGIN
    EXECUTE (
        SELECT format(
                   'CREATE FUNCTION cauce_common(language text) RETURNS text[] LANGUAGE sql IMMUTABLE PARALLEL SAFE'
                   ' RETURN CASE language %s ELSE ''{}''::text[] END',
                   string_agg(format('WHEN %L THEN %L::text[]', language, forms), ' ')
               )
        FROM (
            SELECT language, array_agg(DISTINCT lexeme) AS forms
            FROM jsonb_each(cauce_marks()) AS known (mark, languages)
            CROSS JOIN LATERAL jsonb_array_elements_text(languages) AS language
            CROSS JOIN LATERAL unnest(to_tsvector(cauce_configuration(language), mark))
            WHERE mark !~ '^-'
            GROUP BY language
        ) AS of_one
    );
END;
$$;

-- As before (migration 0014), but that the commonest words of a question's language, or of those of these languages that have
-- the most votes in one that tells none, are left out as its stop words are, in all their forms: for 13 languages the server
-- has no list of stop words, and in that of Spanish there is no cuántos.
CREATE OR REPLACE FUNCTION cauce_question_forms(content text, languages text[] DEFAULT cauce_languages())
RETURNS TABLE (word text, form text)
LANGUAGE plpgsql IMMUTABLE STRICT PARALLEL SAFE
SET search_path FROM CURRENT
SET plan_cache_mode = 'force_generic_plan'
AS $$
#variable_conflict use_column
DECLARE
    normal text := cauce_normal(content);
    spaced text := regexp_replace(normal, '[' || cauce_unspaced() || ']+', ' ', 'g');
    told text := cauce_language(content);
    stopping text[] := CASE WHEN told = 'und' THEN languages ELSE ARRAY[told] END;
    likely text[] := ARRAY[told];
BEGIN
    IF told = 'und' THEN
        likely := ARRAY(
            SELECT language
            FROM (
                SELECT language, votes, max(votes) OVER () AS most
                FROM cauce_votes(content)
                WHERE language = ANY (languages)
            ) AS known
            WHERE votes = most
        );
    END IF;
    RETURN QUERY
    WITH asked AS MATERIALIZED (
        SELECT word, says, bool_or(says) OVER () AS any_says
        FROM (
            SELECT DISTINCT lower(piece) AS word
            FROM regexp_split_to_table(spaced, '[^[:alnum:]\u0900-\u0963\u0966-\u0dff]+') AS piece
            WHERE piece <> ''
        ) AS pieces
        CROSS JOIN LATERAL (
            SELECT NOT EXISTS (
                       SELECT
                       FROM unnest(stopping) AS language
                       WHERE tsvector_to_array(to_tsvector(cauce_configuration(language), word))
                             <@ CASE WHEN language = ANY (likely) THEN cauce_common(language) ELSE '{}' END
                   ) AS says
        ) AS judged
    ),
    inflected AS MATERIALIZED (
        SELECT DISTINCT word, lexeme AS form
        FROM asked
        CROSS JOIN LATERAL unnest(languages || 'und'::text) AS language
        CROSS JOIN LATERAL unnest(to_tsvector(cauce_configuration(language), word))
        WHERE says OR NOT any_says
    )
    SELECT word, form FROM inflected
    UNION ALL
    SELECT NULL, code
    FROM cauce_codes(spaced) AS code
    WHERE NOT EXISTS (SELECT FROM inflected WHERE form = code)
    UNION ALL
    SELECT DISTINCT NULL, sign FROM cauce_signs(normal, true) AS sign;
END;
$$;

-- declared_language of a chunk is from now on what its own words do not decide: what the metadata of its file says, else what
-- the passages around it tell. And whether that was found out for the chunks that a file has.
ALTER TABLE module_embeddings_files_file ADD COLUMN languages_told boolean NOT NULL DEFAULT false;
CREATE INDEX module_embeddings_files_file_languages_untold ON module_embeddings_files_file (file_id)
    WHERE status = 'COMPLETED' AND NOT languages_told;
