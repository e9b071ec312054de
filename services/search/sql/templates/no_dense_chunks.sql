    SELECT NULL::bigint AS chunk_id, NULL::float8 AS distance, NULL::bigint AS passing WHERE false
