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

-- Build the lexical indexes if they cannot be relied on, and say whether they can. Reading goes on meanwhile.
CREATE OR REPLACE FUNCTION module_embeddings_build_lexical() RETURNS boolean
LANGUAGE plpgsql SECURITY DEFINER
SET search_path FROM CURRENT
AS $$
DECLARE
    indexed record;
BEGIN
    IF (SELECT ready FROM module_embeddings_lexical_read) THEN
        RETURN true;
    END IF;
    IF NOT EXISTS (SELECT FROM pg_extension WHERE extname = 'pg_textsearch')
       OR NOT pg_try_advisory_xact_lock(hashtextextended('module_embeddings_build_lexical', 0)) THEN
        RETURN false;
    END IF;
    FOR indexed IN
        SELECT name, name || '_lexical' AS index
        FROM unnest(ARRAY['module_embeddings_file_chunk', 'module_embeddings_resource_lexemes']) AS name
    LOOP
        EXECUTE format(
            'CREATE INDEX %I ON %I USING bm25 (lexemes) WITH (text_config = ''pg_catalog.simple'', k1 = 0.9, b = 0.4)',
            indexed.index || '_new',
            indexed.name
        );
        EXECUTE format('DROP INDEX IF EXISTS %I', indexed.index);
        EXECUTE format('ALTER INDEX %I RENAME TO %I', indexed.index || '_new', indexed.index);
    END LOOP;
    INSERT INTO module_embeddings_lexical_build (database_id, version, built_at)
    SELECT database.oid, extension.extversion, clock_timestamp()
    FROM pg_database AS database, pg_extension AS extension
    WHERE database.datname = current_database() AND extension.extname = 'pg_textsearch'
    ON CONFLICT (id) DO UPDATE
    SET database_id = excluded.database_id, version = excluded.version, built_at = excluded.built_at;
    RETURN true;
END;
$$;
REVOKE EXECUTE ON FUNCTION module_embeddings_build_lexical() FROM PUBLIC;

SELECT module_embeddings_build_lexical();
