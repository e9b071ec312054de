SELECT rule.id AS entity_id, rule.tenant_id, rule.name, rule.revision, rule.updated_at,
       rule.description, rule.condition, rule.severity, rule.action, rule.enabled,
       (SELECT array_agg(concat(variable.name, ' (' || variable.unit || ')', ', ' || variable.path)
                         ORDER BY variable.name, variable.id)
        FROM module_variable_variable AS variable
        WHERE variable.id = ANY (rule.variables) AND variable.tenant_id = rule.tenant_id) AS variables,
       (SELECT array_agg(concat(aggregate.name, ' (' || aggregate.function || ')')
                         ORDER BY aggregate.name, aggregate.id)
        FROM module_aggregate_variable_aggregate_variable AS aggregate
        WHERE aggregate.id = ANY (rule.aggregates) AND aggregate.tenant_id = rule.tenant_id) AS aggregates,
       ARRAY(SELECT 'variable:' || id FROM unnest(rule.variables) AS id)
       || ARRAY(SELECT 'aggregate_variable:' || id FROM unnest(rule.aggregates) AS id) AS reads
FROM module_rule_rule AS rule
