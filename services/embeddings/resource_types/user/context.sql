SELECT person.id AS entity_id, person.tenant_id, person.name, person.revision, person.updated_at,
       person.email, person.role, person.position, person.locale,
       (SELECT concat_ws(', ', customer.name, customer.sector)
        FROM module_customer_customer AS customer
        WHERE customer.id = person.customer AND customer.tenant_id = person.tenant_id) AS customer,
       (SELECT array_agg(team.name ORDER BY team.name, team.id)
        FROM module_group_group AS team
        WHERE team.users @> ARRAY[person.id] AND team.tenant_id = person.tenant_id) AS groups,
       (SELECT array_agg('group:' || team.id)
        FROM module_group_group AS team
        WHERE team.users @> ARRAY[person.id] AND team.tenant_id = person.tenant_id)
       || ARRAY['customer:' || person.customer] AS reads
FROM module_user_user AS person
