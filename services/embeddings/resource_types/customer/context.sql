SELECT customer.id AS entity_id, customer.tenant_id, customer.name, customer.revision, customer.updated_at,
       customer.description, customer.sector, customer.employees,
       (customer.since AT TIME ZONE 'UTC')::date AS since,
       concat_ws(', ', customer.city, customer.country) AS place,
       ARRAY[]::text[] AS reads
FROM module_customer_customer AS customer
