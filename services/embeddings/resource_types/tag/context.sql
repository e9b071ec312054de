SELECT tag.id AS entity_id, tag.tenant_id, tag.name, tag.revision, tag.updated_at,
       tag.description, tag.category,
       (SELECT array_agg(variable.name ORDER BY variable.name, variable.id)
        FROM module_variable_variable AS variable
        WHERE variable.id = ANY (tag.variables) AND variable.tenant_id = tag.tenant_id) AS variables,
       ARRAY(SELECT 'variable:' || id FROM unnest(tag.variables) AS id) AS reads
FROM module_tag_tag AS tag
