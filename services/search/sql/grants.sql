-- What the search service may do: read the read models (granted by their owner) and nothing else yet.
GRANT USAGE ON SCHEMA public TO cauce_search;
