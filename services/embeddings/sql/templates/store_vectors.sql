-- Put the vectors of one type in place. Within the transaction that settled their rows under a valid lease.
INSERT INTO {table} (entity_id, tenant_id, name, embedding_text, embedding, text_hash, space_id)
SELECT entity_id, tenant_id, name, embedding_text, embedding, text_hash, $7::smallint
FROM unnest($1::bigint[], $2::text[], $3::text[], $4::text[], $5::vector[], $6::bytea[])
    AS fresh (entity_id, tenant_id, name, embedding_text, embedding, text_hash)
ON CONFLICT (entity_id) DO UPDATE
SET tenant_id = excluded.tenant_id,
    name = excluded.name,
    embedding_text = excluded.embedding_text,
    embedding = excluded.embedding,
    text_hash = excluded.text_hash,
    space_id = excluded.space_id,
    updated_at = now()
