-- The time by which upkeep and deadlines are compared.
SELECT now()
