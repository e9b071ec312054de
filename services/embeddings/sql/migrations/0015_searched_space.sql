-- Only what can be found counts as a change of a tenant's index: rows of the active space, so that building another one
-- beside it ends no result list. That another space becomes active counts in views/index_version.sql.

CREATE FUNCTION module_embeddings_note_file_change() RETURNS trigger
LANGUAGE plpgsql
AS $$
BEGIN
    IF current_setting('cauce.changed_tenant', true) IS DISTINCT FROM OLD.tenant_id THEN
        PERFORM module_embeddings_count_change(OLD.tenant_id);
    END IF;
    RETURN NULL;
END;
$$;
CREATE OR REPLACE TRIGGER module_embeddings_files_file_changes
    AFTER UPDATE OF name, media_type ON module_embeddings_files_file
    FOR EACH ROW WHEN ((OLD.name, OLD.media_type) IS DISTINCT FROM (NEW.name, NEW.media_type))
    EXECUTE FUNCTION module_embeddings_note_file_change();
CREATE OR REPLACE TRIGGER module_embeddings_files_file_removals
    AFTER DELETE ON module_embeddings_files_file
    FOR EACH ROW EXECUTE FUNCTION module_embeddings_note_file_change();

-- Of the tables of vectors, of chunks and of each type of resource.
CREATE OR REPLACE FUNCTION module_embeddings_note_change() RETURNS trigger
LANGUAGE plpgsql
AS $$
BEGIN
    IF TG_OP <> 'INSERT' AND current_setting('cauce.changed_tenant', true) IS DISTINCT FROM OLD.tenant_id THEN
        PERFORM module_embeddings_count_change(OLD.tenant_id)
        FROM module_embeddings_space
        WHERE id = OLD.space_id AND state = 'ACTIVE';
    END IF;
    IF TG_OP <> 'DELETE' AND current_setting('cauce.changed_tenant', true) IS DISTINCT FROM NEW.tenant_id THEN
        PERFORM module_embeddings_count_change(NEW.tenant_id)
        FROM module_embeddings_space
        WHERE id = NEW.space_id AND state = 'ACTIVE';
    END IF;
    RETURN NULL;
END;
$$;
