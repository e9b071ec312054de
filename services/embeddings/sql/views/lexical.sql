-- The lexical indexes, where the server has BM25. Everything else works without.

DO $$
BEGIN
    IF current_setting('shared_preload_libraries') ~ '\mpg_textsearch\M' THEN
        CREATE EXTENSION IF NOT EXISTS pg_textsearch;
    ELSE
        RAISE WARNING 'pg_textsearch is not preloaded: searches are semantic only';
    END IF;
EXCEPTION WHEN OTHERS THEN
    RAISE WARNING 'pg_textsearch cannot be used, searches are semantic only: %', SQLERRM;
END;
$$;

-- module_embeddings_lexical_read: whether the lexical indexes can be relied on. Before 1.3 the extension keeps what was
-- written last in shared memory by the index's id alone: it counts no document of before a restart of the server, and
-- takes the index of a copied database for that of the original.
CREATE OR REPLACE VIEW module_embeddings_lexical_read AS
SELECT EXISTS (
    SELECT
    FROM pg_extension AS extension
    JOIN module_embeddings_lexical_build AS build ON build.version = extension.extversion
    WHERE extension.extname = 'pg_textsearch'
      AND (
          (regexp_match(build.version, '^(\d+)\.(\d+)'))::integer[] >= ARRAY[1, 3]
          OR (
              build.built_at > pg_postmaster_start_time()
              AND build.database_id = (SELECT oid FROM pg_database WHERE datname = current_database())
          )
      )
) AS ready;

-- module_embeddings_resource_lexemes_read: what the resources of every type are found by.
CREATE OR REPLACE VIEW module_embeddings_resource_lexemes_read AS
SELECT entity_type, entity_id, tenant_id, language, lexemes
FROM module_embeddings_resource_lexemes;

-- module_embeddings_lexical_index: the lexical indexes, those that are to be and those that are not to be any more. Chunks
-- have one for each space that has vectors, of the rows of that space alone; before there were two, one for all.
CREATE OR REPLACE VIEW module_embeddings_lexical_index AS
SELECT table_name, index_name, of_rows, retired, (to_regclass(quote_ident(index_name)) IS NULL) = retired AS as_it_should_be
FROM (
    SELECT 'module_embeddings_resource_lexemes' AS table_name, 'module_embeddings_resource_lexemes_lexical' AS index_name,
           '' AS of_rows, false AS retired
    UNION ALL
    SELECT 'module_embeddings_file_chunk', 'module_embeddings_file_chunk_lexical', '', true
    UNION ALL
    SELECT 'module_embeddings_file_chunk', 'module_embeddings_file_chunk_lexical_' || id, 'WHERE space_id = ' || id,
           state = 'RETIRED'
    FROM module_embeddings_space
) AS listed;

-- Make those that are missing, or all of them again, and drop the retired ones. Reading goes on, writing waits.
CREATE OR REPLACE FUNCTION module_embeddings_index_words(again boolean) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER
SET search_path FROM CURRENT
AS $$
DECLARE
    wanted record;
BEGIN
    FOR wanted IN
        SELECT *
        FROM module_embeddings_lexical_index
        WHERE NOT as_it_should_be OR (again AND NOT retired)
        ORDER BY retired, index_name
    LOOP
        IF NOT wanted.retired THEN
            EXECUTE format(
                'CREATE INDEX %I ON %I USING bm25 (lexemes)'
                ' WITH (text_config = ''pg_catalog.simple'', k1 = 0.9, b = 0.4) %s',
                wanted.index_name || '_new',
                wanted.table_name,
                wanted.of_rows
            );
        END IF;
        EXECUTE format('DROP INDEX IF EXISTS %I', wanted.index_name);
        IF NOT wanted.retired THEN
            EXECUTE format('ALTER INDEX %I RENAME TO %I', wanted.index_name || '_new', wanted.index_name);
        END IF;
    END LOOP;
END;
$$;
REVOKE EXECUTE ON FUNCTION module_embeddings_index_words(boolean) FROM PUBLIC;

-- Build the lexical indexes if they cannot be relied on, and say whether they can.
CREATE OR REPLACE FUNCTION module_embeddings_build_lexical() RETURNS boolean
LANGUAGE plpgsql SECURITY DEFINER
SET search_path FROM CURRENT
AS $$
DECLARE
    reliable boolean := (SELECT ready FROM module_embeddings_lexical_read);
BEGIN
    IF reliable AND NOT EXISTS (SELECT FROM module_embeddings_lexical_index WHERE NOT as_it_should_be) THEN
        RETURN true;
    END IF;
    IF NOT EXISTS (SELECT FROM pg_extension WHERE extname = 'pg_textsearch')
       OR NOT pg_try_advisory_xact_lock(hashtextextended('module_embeddings_build_lexical', 0)) THEN
        RETURN false;
    END IF;
    PERFORM module_embeddings_index_words(again => NOT reliable);
    IF NOT reliable THEN
        INSERT INTO module_embeddings_lexical_build (database_id, version, built_at)
        SELECT database.oid, extension.extversion, clock_timestamp()
        FROM pg_database AS database, pg_extension AS extension
        WHERE database.datname = current_database() AND extension.extname = 'pg_textsearch'
        ON CONFLICT (id) DO UPDATE
        SET database_id = excluded.database_id, version = excluded.version, built_at = excluded.built_at;
    END IF;
    RETURN true;
END;
$$;
REVOKE EXECUTE ON FUNCTION module_embeddings_build_lexical() FROM PUBLIC;

SELECT module_embeddings_build_lexical();
