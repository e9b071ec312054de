-- How often what can be found of a tenant has changed: the version of its index. Counted by the transaction that makes
-- the change, so that whoever sees the change sees another version.

-- A tenant's count is the sum over its slots. A transaction takes a slot that no other holds, or makes one, so that
-- writers never wait for one another: there are as many slots as transactions that once wrote at the same time.
CREATE TABLE module_embeddings_index_change (
    slot      bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    tenant_id text   NOT NULL,
    changes   bigint NOT NULL DEFAULT 1
) WITH (fillfactor = 50);
CREATE INDEX module_embeddings_index_change_tenant ON module_embeddings_index_change (tenant_id);

CREATE FUNCTION module_embeddings_count_change(tenant text) RETURNS void
LANGUAGE plpgsql
AS $$
BEGIN
    UPDATE module_embeddings_index_change
    SET changes = changes + 1
    WHERE slot = (
        SELECT slot
        FROM module_embeddings_index_change
        WHERE tenant_id = tenant
        LIMIT 1
        FOR UPDATE SKIP LOCKED
    );
    IF NOT FOUND THEN
        INSERT INTO module_embeddings_index_change (tenant_id) VALUES (tenant);
    END IF;
    PERFORM set_config('cauce.changed_tenant', tenant, true);
END;
$$;

-- Once a transaction and tenant is enough; a setting of the transaction, which a rollback takes back as well, knows.
CREATE FUNCTION module_embeddings_note_change() RETURNS trigger
LANGUAGE plpgsql
AS $$
BEGIN
    IF TG_OP <> 'INSERT' AND current_setting('cauce.changed_tenant', true) IS DISTINCT FROM OLD.tenant_id THEN
        PERFORM module_embeddings_count_change(OLD.tenant_id);
    END IF;
    IF TG_OP <> 'DELETE' AND current_setting('cauce.changed_tenant', true) IS DISTINCT FROM NEW.tenant_id THEN
        PERFORM module_embeddings_count_change(NEW.tenant_id);
    END IF;
    RETURN NULL;
END;
$$;

CREATE TRIGGER module_embeddings_file_chunk_changes
    AFTER INSERT OR UPDATE OR DELETE ON module_embeddings_file_chunk
    FOR EACH ROW EXECUTE FUNCTION module_embeddings_note_change();

-- Of the mirror of files a search sees names and media types, and whether there is such a file.
CREATE TRIGGER module_embeddings_files_file_changes
    AFTER UPDATE OF name, media_type ON module_embeddings_files_file
    FOR EACH ROW WHEN ((OLD.name, OLD.media_type) IS DISTINCT FROM (NEW.name, NEW.media_type))
    EXECUTE FUNCTION module_embeddings_note_change();
CREATE TRIGGER module_embeddings_files_file_removals
    AFTER DELETE ON module_embeddings_files_file
    FOR EACH ROW EXECUTE FUNCTION module_embeddings_note_change();
