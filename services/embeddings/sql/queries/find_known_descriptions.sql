-- What is known of images $3 by describer $2 in this tenant.
SELECT DISTINCT ON (digest) digest, text, spans
FROM module_embeddings_file_image
WHERE tenant_id = $1 AND describer = $2 AND digest = ANY($3::bytea[]) AND error IS NULL
ORDER BY digest
