-- The embedding space that answers searches, as the embeddings service recorded it, and whether words can be searched.
SELECT id, name, provider, model, native_dimensions, convention,
       (SELECT ready FROM module_embeddings_lexical_read) AS lexical
FROM module_embeddings_space
WHERE state = 'ACTIVE';
