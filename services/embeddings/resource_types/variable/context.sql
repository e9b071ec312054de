-- The tags stand here because people ask for variables by them.
SELECT variable.id AS entity_id, variable.tenant_id, variable.name, variable.revision, variable.updated_at,
       variable.description, variable.unit, variable.path, variable.data_type,
       variable.minimum, variable.maximum, variable.aliases,
       (SELECT concat_ws(', ', customer.name, customer.sector)
        FROM module_customer_customer AS customer
        WHERE customer.id = variable.customer AND customer.tenant_id = variable.tenant_id) AS customer,
       (SELECT array_agg(tag.name ORDER BY tag.name, tag.id)
        FROM module_tag_tag AS tag
        WHERE tag.variables @> ARRAY[variable.id] AND tag.tenant_id = variable.tenant_id) AS tags,
       (SELECT array_agg('tag:' || tag.id)
        FROM module_tag_tag AS tag
        WHERE tag.variables @> ARRAY[variable.id] AND tag.tenant_id = variable.tenant_id)
       || ARRAY['customer:' || variable.customer] AS reads
FROM module_variable_variable AS variable
