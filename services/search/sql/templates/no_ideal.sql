SELECT NULL::float8 AS ideal
