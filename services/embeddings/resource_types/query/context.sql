SELECT query.id AS entity_id, query.tenant_id, query.name, query.revision, query.updated_at,
       query.description, query.formula, query.unit, query.period,
       (SELECT array_agg(concat(variable.name, ' (' || variable.unit || ')', ', ' || variable.path)
                         ORDER BY variable.name, variable.id)
        FROM module_variable_variable AS variable
        WHERE variable.id = ANY (query.variables) AND variable.tenant_id = query.tenant_id) AS variables,
       (SELECT array_agg(concat(aggregate.name, ' (' || aggregate.function || ')')
                         ORDER BY aggregate.name, aggregate.id)
        FROM module_aggregate_variable_aggregate_variable AS aggregate
        WHERE aggregate.id = ANY (query.aggregates) AND aggregate.tenant_id = query.tenant_id) AS aggregates,
       (SELECT array_agg(other.name ORDER BY other.name, other.id)
        FROM module_query_query AS other
        WHERE other.id = ANY (query.queries) AND other.tenant_id = query.tenant_id) AS queries,
       ARRAY(SELECT 'variable:' || id FROM unnest(query.variables) AS id)
       || ARRAY(SELECT 'aggregate_variable:' || id FROM unnest(query.aggregates) AS id)
       || ARRAY(SELECT 'query:' || id FROM unnest(query.queries) AS id) AS reads
FROM module_query_query AS query
