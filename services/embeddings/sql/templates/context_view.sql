CREATE VIEW {context_view} AS
{select}
