-- What a lexical search needs of a text: its language, and its words and codes in the form that they are compared in.

CREATE EXTENSION IF NOT EXISTS unaccent;

-- Accents go before the stemmer, so that people may leave them out; stop words are written with them in the list, and
-- without them in some questions.
CREATE TEXT SEARCH DICTIONARY cauce_stop_es (TEMPLATE = pg_catalog.simple, STOPWORDS = spanish, ACCEPT = false);
CREATE TEXT SEARCH DICTIONARY cauce_stop_en (TEMPLATE = pg_catalog.simple, STOPWORDS = english, ACCEPT = false);

CREATE TEXT SEARCH CONFIGURATION cauce_simple (COPY = pg_catalog.simple);
ALTER TEXT SEARCH CONFIGURATION cauce_simple
    ALTER MAPPING FOR asciiword, word, numword, asciihword, hword, numhword, hword_asciipart, hword_part, hword_numpart
    WITH unaccent, simple;
CREATE TEXT SEARCH CONFIGURATION cauce_es (COPY = cauce_simple);
ALTER TEXT SEARCH CONFIGURATION cauce_es
    ALTER MAPPING FOR asciiword, word, asciihword, hword, hword_asciipart, hword_part
    WITH cauce_stop_es, unaccent, cauce_stop_es, spanish_stem;
CREATE TEXT SEARCH CONFIGURATION cauce_en (COPY = cauce_simple);
ALTER TEXT SEARCH CONFIGURATION cauce_en
    ALTER MAPPING FOR asciiword, word, asciihword, hword, hword_asciipart, hword_part
    WITH cauce_stop_en, unaccent, cauce_stop_en, english_stem;

-- es, en, or und where the commonest words of neither prevail: then no word is stemmed and none left out.
CREATE FUNCTION cauce_language(content text) RETURNS text
LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE
BEGIN ATOMIC
    SELECT CASE WHEN spanish > english THEN 'es' WHEN english > spanish THEN 'en' ELSE 'und' END
    FROM (
        SELECT regexp_count(
                   content,
                   '\m(?:el|la|los|las|de|del|que|qué|y|o|en|un|una|por|con|para|se|es|son|fue|al|lo|su|sus|no|como|cómo'
                   '|más|pero|este|esta|entre|cuando|sin|sobre|cuál|cuáles|cuántos|quién|dónde|ha|hay|está)\M',
                   1,
                   'i'
               ) AS spanish,
               regexp_count(
                   content,
                   '\m(?:the|of|and|or|to|in|is|are|was|were|that|it|for|on|as|with|by|at|be|this|from|an|which|not|have'
                   '|has|what|who|how|did|does|do|when|where|many|their|its)\M',
                   1,
                   'i'
               ) AS english
    ) AS votes;
END;

-- The words as the language inflects them. The parser sees no separators: it would take P-4711/B for a number and a
-- path.
CREATE FUNCTION cauce_words(language text, content text) RETURNS tsvector
LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE
RETURN to_tsvector(
    CASE language
        WHEN 'es' THEN 'cauce_es'::regconfig
        WHEN 'en' THEN 'cauce_en'::regconfig
        ELSE 'cauce_simple'::regconfig
    END,
    regexp_replace(content, '[^[:alnum:]]+', ' ', 'g')
);

-- Whatever has a digit or a low line between letters, whole and without its separators, and its runs of letters and of
-- digits: P-4711/B is p4711b, p, 4711 and b.
CREATE FUNCTION cauce_codes(content text) RETURNS SETOF text
LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE
BEGIN ATOMIC
    SELECT DISTINCT form
    FROM regexp_matches(
             lower(unaccent('unaccent', content)),
             '(?:[[:alnum:]]+[-_/.:+#])*[[:alnum:]]*(?:[0-9]|[[:alnum:]]_[[:alnum:]])[[:alnum:]]*'
             '(?:[-_/.:+#][[:alnum:]]+)*',
             'g'
         ) AS found (code)
    CROSS JOIN LATERAL (
        SELECT regexp_replace(code[1], '[^[:alnum:]]', '', 'g') AS form
        UNION ALL
        SELECT run[1] FROM regexp_matches(code[1], '[[:alpha:]]+|[0-9]+', 'g') AS runs (run)
    ) AS forms;
END;

-- What a text is found by, each word as often as it stands there: the document of the lexical index.
CREATE FUNCTION cauce_lexemes(language text, content text) RETURNS text
LANGUAGE plpgsql IMMUTABLE STRICT PARALLEL SAFE
SET search_path FROM CURRENT
AS $$
DECLARE
    words tsvector := cauce_words(language, content);
BEGIN
    RETURN coalesce(
        (
            SELECT string_agg(form, ' ')
            FROM (
                SELECT rtrim(repeat(lexeme || ' ', cardinality(positions))) FROM unnest(words)
                UNION ALL
                SELECT code FROM cauce_codes(content) AS code WHERE NOT words @@ quote_literal(code)::tsquery
            ) AS forms (form)
        ),
        ''
    );
END;
$$;

-- What a question looks for: each of its words in the form of every language, without those that say nothing in one of
-- them; and its codes, which belong to no word.
CREATE FUNCTION cauce_question_forms(content text) RETURNS TABLE (word text, form text)
LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE
BEGIN ATOMIC
    WITH inflected AS (
        SELECT DISTINCT lower(piece) AS word, lexeme AS form
        FROM regexp_split_to_table(content, '[^[:alnum:]]+') AS piece
        CROSS JOIN LATERAL (
            SELECT to_tsvector('cauce_es', piece) AS spanish, to_tsvector('cauce_en', piece) AS english
        ) AS stemmed
        CROSS JOIN LATERAL unnest(spanish || english || to_tsvector('cauce_simple', piece))
        WHERE spanish <> '' AND english <> ''
    )
    SELECT inflected.word, inflected.form FROM inflected
    UNION ALL
    SELECT NULL, code
    FROM cauce_codes(content) AS code
    WHERE NOT EXISTS (SELECT FROM inflected WHERE inflected.form = code);
END;

CREATE FUNCTION cauce_question(content text) RETURNS text
LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE
BEGIN ATOMIC
    SELECT coalesce(string_agg(DISTINCT form, ' '), '') FROM cauce_question_forms(content);
END;

ALTER TABLE module_embeddings_file_chunk
    ADD COLUMN declared_language text,
    ADD COLUMN language text NOT NULL GENERATED ALWAYS AS (coalesce(declared_language, cauce_language(text))) STORED,
    ADD COLUMN lexemes text NOT NULL
        GENERATED ALWAYS AS (cauce_lexemes(coalesce(declared_language, cauce_language(text)), text)) STORED,
    ADD CONSTRAINT chunk_language_is_a_tag CHECK (declared_language ~ '^[a-z]{2,3}$');

-- Counts what passes a filter without reading a row.
CREATE INDEX module_embeddings_file_chunk_language ON module_embeddings_file_chunk (tenant_id, space_id, language);

-- The texts of resources of every type in one index: word counts of small tables of their own would not be comparable.
CREATE TABLE module_embeddings_resource_lexemes (
    entity_type text   NOT NULL,
    entity_id   bigint NOT NULL,
    tenant_id   text   NOT NULL,
    language    text   NOT NULL,
    lexemes     text   NOT NULL,

    PRIMARY KEY (entity_type, entity_id),
    FOREIGN KEY (entity_type, entity_id) REFERENCES module_embeddings_resource ON DELETE CASCADE
);
CREATE INDEX module_embeddings_resource_lexemes_tenant ON module_embeddings_resource_lexemes (tenant_id, entity_type);

-- The lexical indexes as they were built last: in which database, with which version of the extension, and when.
CREATE TABLE module_embeddings_lexical_build (
    id           boolean     PRIMARY KEY DEFAULT true CHECK (id),
    database_id  oid         NOT NULL,
    version      text        NOT NULL,
    built_at     timestamptz NOT NULL
);
