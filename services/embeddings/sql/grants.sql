-- What the embeddings service may do, and what it lets the others read. Re-applied at every migration.
GRANT USAGE ON SCHEMA public TO cauce_embeddings;
GRANT SELECT, INSERT, UPDATE, DELETE
    ON module_embeddings_space, module_embeddings_files_file, module_embeddings_file_chunk, module_embeddings_outbox
    TO cauce_embeddings;
GRANT SELECT, INSERT, UPDATE, DELETE ON module_embeddings_model_quota, module_embeddings_space_lease
    TO cauce_embeddings;
GRANT EXECUTE ON FUNCTION module_embeddings_index_spaces() TO cauce_embeddings;
GRANT SELECT, INSERT, UPDATE, DELETE
    ON module_embeddings_file_page, module_embeddings_file_image, module_embeddings_recipe, module_embeddings_kept_vector
    TO cauce_embeddings;
GRANT SELECT ON module_embeddings_files_context TO cauce_embeddings;

GRANT SELECT ON module_embeddings_files_status TO cauce_files;

GRANT SELECT ON module_embeddings_chunk_read, module_embeddings_file_read, module_embeddings_space TO cauce_search;

GRANT SELECT, INSERT, UPDATE, DELETE ON module_embeddings_resource, module_embeddings_dependency TO cauce_embeddings;
GRANT SELECT ON module_embeddings_resource_context, module_embeddings_unified TO cauce_embeddings;
GRANT SELECT ON module_embeddings_unified, module_embeddings_resource_read TO cauce_search;

GRANT SELECT, INSERT, UPDATE, DELETE ON module_embeddings_resource_lexemes, module_embeddings_lexical_build
    TO cauce_embeddings;
GRANT SELECT ON module_embeddings_resource_lexemes_read, module_embeddings_lexical_read TO cauce_search;
GRANT EXECUTE ON FUNCTION module_embeddings_build_lexical() TO cauce_embeddings;

GRANT SELECT, INSERT, UPDATE, DELETE ON module_embeddings_index_change TO cauce_embeddings;
GRANT SELECT ON module_embeddings_index_version_read TO cauce_search;
