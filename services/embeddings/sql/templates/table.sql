-- The vectors of one type of resource. The reference makes an orphan impossible: a resource that leaves the mirror
-- takes its vector along. Applied again when this text changes.
CREATE TABLE IF NOT EXISTS {table} (
    id             bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    entity_type    text        NOT NULL GENERATED ALWAYS AS ({type}) STORED,
    entity_id      bigint      NOT NULL,
    tenant_id      text        NOT NULL,
    name           text        NOT NULL,
    embedding_text text        NOT NULL,
    embedding      vector(768) NOT NULL,
    text_hash      bytea       NOT NULL,
    space_id       smallint    NOT NULL REFERENCES module_embeddings_space,
    updated_at     timestamptz NOT NULL DEFAULT now(),

    FOREIGN KEY (entity_type, entity_id) REFERENCES module_embeddings_resource ON DELETE CASCADE,
    CONSTRAINT resource_has_text CHECK (embedding_text <> '')
);
CREATE INDEX IF NOT EXISTS {table_tenant} ON {table} (tenant_id, entity_id);

-- A vector in each space, and an index of vectors for each (views/spaces.sql); before there were two, one for all.
CREATE UNIQUE INDEX IF NOT EXISTS {table_entity} ON {table} (entity_id, space_id);
DROP INDEX IF EXISTS {table_embedding};
DO $$
DECLARE
    former text;
BEGIN
    SELECT conname INTO former
    FROM pg_constraint
    WHERE conrelid = '{table}'::regclass AND contype = 'u' AND cardinality(conkey) = 1;
    IF former IS NOT NULL THEN
        EXECUTE format('ALTER TABLE {table} DROP CONSTRAINT %I', former);
    END IF;
END;
$$;

-- So that whoever compares need not read the text. What an earlier release let be otherwise, the sweep makes again.
DO $$
BEGIN
    IF NOT EXISTS (
        SELECT FROM pg_constraint WHERE conrelid = '{table}'::regclass AND conname = 'hash_is_of_the_text'
    ) THEN
        DELETE FROM {table} WHERE text_hash <> sha256(convert_to(embedding_text, 'UTF8'));
        ALTER TABLE {table}
            ADD CONSTRAINT hash_is_of_the_text CHECK (text_hash = sha256(convert_to(embedding_text, 'UTF8')));
    END IF;
END;
$$;

-- Replacing vectors leaves dead tuples in the graph, and a graph full of them answers short.
ALTER TABLE {table} SET (autovacuum_vacuum_scale_factor = 0.02);

CREATE OR REPLACE TRIGGER module_embeddings_note_change
    AFTER INSERT OR UPDATE OR DELETE ON {table}
    FOR EACH ROW EXECUTE FUNCTION module_embeddings_note_change();

GRANT SELECT, INSERT, UPDATE, DELETE ON {table} TO cauce_embeddings;

-- Words of vectors from before there was a lexical search, or from before its rules became others (migration 0014).
INSERT INTO module_embeddings_resource_lexemes (entity_type, entity_id, tenant_id, language, lexemes)
SELECT entity_type, entity_id, tenant_id, cauce_language(embedding_text),
       cauce_lexemes(cauce_language(embedding_text), embedding_text)
FROM {table}
ON CONFLICT (entity_type, entity_id) DO NOTHING;
