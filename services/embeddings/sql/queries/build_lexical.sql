-- Build the lexical indexes if they cannot be relied on, and say whether they can.
SELECT module_embeddings_build_lexical()
