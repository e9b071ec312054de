    SELECT NULL::text AS entity_type, NULL::bigint AS entity_id, NULL::float8 AS distance, NULL::bigint AS passing WHERE false
