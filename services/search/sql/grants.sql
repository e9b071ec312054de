-- What the search service may do: read the read models (granted by their owner), and keep what it computed.
GRANT USAGE ON SCHEMA public TO cauce_search;
GRANT SELECT, INSERT, UPDATE, DELETE ON module_search_query_vector TO cauce_search;
