-- Note by which settings a worker that has just started processes files; the sweep goes by the latest.
INSERT INTO module_embeddings_recipe AS known (recipe)
VALUES ($1)
ON CONFLICT (single) DO UPDATE
SET recipe = excluded.recipe,
    announced_at = now()
WHERE known.recipe <> excluded.recipe
