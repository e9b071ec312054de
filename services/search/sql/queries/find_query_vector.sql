-- The vector of the text with the hash $3 in the space $2, for the tenant $1; its use is noted once an hour.
WITH noted AS (
    UPDATE module_search_query_vector SET used_at = now()
    WHERE tenant_id = $1 AND space = $2 AND text_hash = $3 AND used_at < now() - interval '1 hour'
)
SELECT embedding FROM module_search_query_vector WHERE tenant_id = $1 AND space = $2 AND text_hash = $3;
