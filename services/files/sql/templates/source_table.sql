-- The source table of one type of resource. Applied again when the declaration changes, so fields may be added later;
-- a field that is declared no more leaves its column. References are not foreign keys: events come in any order.
CREATE TABLE IF NOT EXISTS {source_table} (
    id         bigint PRIMARY KEY,
    tenant_id  text        NOT NULL,
    name       text        NOT NULL,
    revision   bigint      NOT NULL DEFAULT nextval('module_catalog_revision'),
    created_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    updated_at timestamptz NOT NULL DEFAULT clock_timestamp(),

    CONSTRAINT resource_id_positive CHECK (id > 0),
    CONSTRAINT resource_tenant_named CHECK (tenant_id <> ''),
    CONSTRAINT resource_name_length CHECK (char_length(name) BETWEEN 1 AND 255)
);
{columns}
CREATE INDEX IF NOT EXISTS {source_table_tenant} ON {source_table} (tenant_id, id);
{indexes}
-- A write sets neither revision nor updated_at.
CREATE OR REPLACE TRIGGER advance BEFORE UPDATE ON {source_table}
    FOR EACH ROW EXECUTE FUNCTION module_catalog_advance();

GRANT SELECT, INSERT, UPDATE, DELETE ON {source_table} TO cauce_files;
GRANT USAGE ON SEQUENCE module_catalog_revision TO cauce_files;
