-- Put the vectors of one type in place, and what their texts are found by. Within the transaction that settled their
-- rows under a valid lease.
-- Vectors that they have in other spaces are of texts that are no more.
WITH other AS (
    DELETE FROM {table} WHERE entity_id = ANY ($1::bigint[]) AND space_id <> $7::smallint
), stored AS (
    INSERT INTO {table} (entity_id, tenant_id, name, embedding_text, embedding, text_hash, space_id)
    SELECT entity_id, tenant_id, name, embedding_text, embedding, text_hash, $7::smallint
    FROM unnest($1::bigint[], $2::text[], $3::text[], $4::text[], $5::vector[], $6::bytea[])
        AS fresh (entity_id, tenant_id, name, embedding_text, embedding, text_hash)
    ON CONFLICT (entity_id, space_id) DO UPDATE
    SET tenant_id = excluded.tenant_id,
        name = excluded.name,
        embedding_text = excluded.embedding_text,
        embedding = excluded.embedding,
        text_hash = excluded.text_hash,
        updated_at = now()
    RETURNING entity_type, entity_id, tenant_id, embedding_text, cauce_language(embedding_text) AS language
)
INSERT INTO module_embeddings_resource_lexemes (entity_type, entity_id, tenant_id, language, lexemes)
SELECT entity_type, entity_id, tenant_id, language, cauce_lexemes(language, embedding_text)
FROM stored
ON CONFLICT (entity_type, entity_id) DO UPDATE
SET tenant_id = excluded.tenant_id,
    language = excluded.language,
    lexemes = excluded.lexemes
