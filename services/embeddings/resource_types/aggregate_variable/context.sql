SELECT aggregate.id AS entity_id, aggregate.tenant_id, aggregate.name, aggregate.revision, aggregate.updated_at,
       aggregate.description, aggregate.function, aggregate.time_window, aggregate.unit,
       (SELECT array_agg(variable.name ORDER BY variable.name, variable.id)
        FROM module_variable_variable AS variable
        WHERE variable.id = ANY (aggregate.members) AND variable.tenant_id = aggregate.tenant_id) AS members,
       ARRAY(SELECT 'variable:' || id FROM unnest(aggregate.members) AS id) AS reads
FROM module_aggregate_variable_aggregate_variable AS aggregate
