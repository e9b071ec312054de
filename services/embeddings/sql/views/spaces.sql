-- The vector indexes: one for each table of vectors and each space that has vectors, of the rows of that space alone.
-- The lexical indexes of chunks (views/lexical.sql) come and go with them.

-- Make those that are missing and drop those of retired spaces. Reading goes on, writing waits for a new one.
CREATE OR REPLACE FUNCTION module_embeddings_index_spaces() RETURNS void
LANGUAGE plpgsql SECURITY DEFINER
SET search_path FROM CURRENT
AS $$
DECLARE
    wanted record;
BEGIN
    FOR wanted IN
        SELECT vectors.relname AS table_name, vectors.relname || '_embedding_' || space.id AS index_name,
               space.id AS space_id, space.state = 'RETIRED' AS retired
        FROM pg_class AS vectors
        CROSS JOIN module_embeddings_space AS space
        WHERE vectors.relkind = 'r' AND vectors.relnamespace = current_schema()::regnamespace
          AND vectors.relname LIKE 'module\_embeddings\_%'
          AND 3 = (  -- what is searched has a tenant
              SELECT count(*)
              FROM pg_attribute
              WHERE attrelid = vectors.oid AND attname IN ('embedding', 'space_id', 'tenant_id') AND NOT attisdropped
          )
        ORDER BY table_name, space_id
    LOOP
        IF wanted.retired THEN
            EXECUTE format('DROP INDEX IF EXISTS %I', wanted.index_name);
        ELSIF to_regclass(quote_ident(wanted.index_name)) IS NULL THEN
            EXECUTE format(
                'CREATE INDEX %I ON %I USING hnsw (embedding vector_cosine_ops) WITH (ef_construction = 200)'
                ' WHERE space_id = %s',
                wanted.index_name,
                wanted.table_name,
                wanted.space_id
            );
        ELSIF NOT EXISTS (
            SELECT FROM pg_class
            WHERE oid = to_regclass(quote_ident(wanted.index_name)) AND 'ef_construction=200' = ANY (reloptions)
        ) THEN  -- for what is written from now on; a REINDEX finds better neighbours for the rest
            EXECUTE format('ALTER INDEX %I SET (ef_construction = 200)', wanted.index_name);
        END IF;
    END LOOP;
    -- Where they cannot be relied on, all of them are built again soon, and outside of this transaction.
    IF (SELECT ready FROM module_embeddings_lexical_read) THEN
        PERFORM pg_advisory_xact_lock(hashtextextended('module_embeddings_build_lexical', 0));
        PERFORM module_embeddings_index_words(again => false);
    END IF;
END;
$$;
REVOKE EXECUTE ON FUNCTION module_embeddings_index_spaces() FROM PUBLIC;

-- A space is never without its indexes, whoever records it.
CREATE OR REPLACE FUNCTION module_embeddings_index_new_space() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER
SET search_path FROM CURRENT
AS $$
BEGIN
    PERFORM module_embeddings_index_spaces();
    RETURN NULL;
END;
$$;
REVOKE EXECUTE ON FUNCTION module_embeddings_index_new_space() FROM PUBLIC;
CREATE OR REPLACE TRIGGER module_embeddings_space_recorded
    AFTER INSERT ON module_embeddings_space
    FOR EACH ROW EXECUTE FUNCTION module_embeddings_index_new_space();

SELECT module_embeddings_index_spaces();
