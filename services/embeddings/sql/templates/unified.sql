-- module_embeddings_resource_context: which resources there are, in which state, and what each looks at.
CREATE VIEW module_embeddings_resource_context AS
{context_arms};

-- module_embeddings_unified: the vectors of every type. A plain UNION ALL of bare columns, each of one type in all
-- arms: an expression, a condition or another type in any arm would lose every arm's vector index.
CREATE OR REPLACE VIEW module_embeddings_unified AS
{unified_arms};
