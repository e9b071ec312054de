SELECT team.id AS entity_id, team.tenant_id, team.name, team.revision, team.updated_at,
       team.description,
       (SELECT array_agg(concat(person.name, ' (' || person.position || ')') ORDER BY person.name, person.id)
        FROM module_user_user AS person
        WHERE person.id = ANY (team.users) AND person.tenant_id = team.tenant_id) AS users,
       ARRAY(SELECT 'user:' || id FROM unnest(team.users) AS id) AS reads
FROM module_group_group AS team
