-- One login role per service. Run once per cluster by an administrator; safe to run again.
-- Passwords are the operator's to set (ALTER ROLE ... PASSWORD); the embedded stack trusts its loopback socket.
-- Tables belong to the role that migrates, never to a service: a service cannot alter or drop what it uses.
DO $$
DECLARE
    service text;
BEGIN
    FOREACH service IN ARRAY ARRAY['cauce_files', 'cauce_embeddings', 'cauce_search'] LOOP
        IF NOT EXISTS (SELECT FROM pg_roles WHERE rolname = service) THEN
            EXECUTE format('CREATE ROLE %I LOGIN NOSUPERUSER NOCREATEDB NOCREATEROLE NOBYPASSRLS', service);
        END IF;
    END LOOP;
END
$$;
