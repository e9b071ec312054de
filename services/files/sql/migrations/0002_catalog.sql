-- What the source tables of all types of resources share; each table is derived from its type's declaration.

-- One sequence for all of them: a resource that is deleted and made again never has a revision that it had before.
CREATE SEQUENCE module_catalog_revision;

-- The database numbers the changes, so no writer can forget to.
CREATE FUNCTION module_catalog_advance() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    NEW.revision := nextval('module_catalog_revision');
    NEW.updated_at := clock_timestamp();
    RETURN NEW;
END
$$;
