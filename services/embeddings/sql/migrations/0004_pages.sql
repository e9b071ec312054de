-- What is kept of a file besides its chunks: what each page is and where its text stands, what its images show, and
-- by which settings all of it was made.

CREATE TABLE module_embeddings_file_page (
    file_id   bigint  NOT NULL REFERENCES module_embeddings_files_file ON DELETE CASCADE,
    number    integer NOT NULL,
    kind      text    NOT NULL,
    width     integer,
    height    integer,
    unit      text,
    -- Six integers for each piece of text in a line: the offsets of its characters in the document's text (char_start
    -- and char_end of a chunk count there), then left, top, right and bottom in tenths of the unit.
    spans     integer[],

    PRIMARY KEY (file_id, number),
    CONSTRAINT page_counts CHECK (number >= 1),
    CONSTRAINT page_kind_known CHECK (kind IN ('text', 'ocr', 'described', 'empty', 'garbled', 'unreadable')),
    CONSTRAINT page_layout_whole CHECK (num_nulls(width, height, unit, spans) IN (0, 4)),
    CONSTRAINT page_spans_whole CHECK (cardinality(spans) % 6 = 0)
);

-- A description that was made is not paid for again, and one that failed says why.
CREATE TABLE module_embeddings_file_image (
    file_id   bigint    NOT NULL REFERENCES module_embeddings_files_file ON DELETE CASCADE,
    position  integer   NOT NULL,
    tenant_id text      NOT NULL,
    digest    bytea     NOT NULL,
    describer text      NOT NULL,
    text      text      NOT NULL,
    -- As of a page, but offsets in this text, and lengths in tenths of a pixel.
    spans     integer[] NOT NULL,
    error     text,

    PRIMARY KEY (file_id, position),
    CONSTRAINT image_failed_has_no_text CHECK (error IS NULL OR text = ''),
    CONSTRAINT image_spans_whole CHECK (cardinality(spans) % 6 = 0)
);
CREATE INDEX module_embeddings_file_image_known ON module_embeddings_file_image (tenant_id, describer, digest);

-- The settings by which a file was processed, and those by which files are processed now.
ALTER TABLE module_embeddings_files_file ADD COLUMN recipe jsonb;

CREATE TABLE module_embeddings_recipe (
    single       boolean     PRIMARY KEY DEFAULT true CHECK (single),
    recipe       jsonb       NOT NULL,
    announced_at timestamptz NOT NULL DEFAULT now()
);
