"""What stands in a document is in its text, in the order in which a person reads it, whatever the format."""

import pytest

from services.embeddings.adapters.extractors.limits import ExtractionLimits
from services.embeddings.adapters.extractors.registry import read_document
from tests.support.known_texts import KnownText, kept, known_texts

DOCUMENTS = [(known, "pymupdf") for known in known_texts()]
DOCUMENTS += [(known, "pdfium") for known, _ in DOCUMENTS if known.name.endswith(".pdf")]


@pytest.mark.parametrize(("known", "reader"), DOCUMENTS, ids=[f"{known.name} {reader}" for known, reader in DOCUMENTS])
def test_at_least_99_of_100_characters_are_kept_in_reading_order(tmp_path, known: KnownText, reader: str):
    path = tmp_path / "content"
    path.write_bytes(known.data)
    options = frozenset([reader])
    _, pages = read_document(path, name=known.name, media_type="", limits=ExtractionLimits(), options=options)
    assert kept(known.text, "\n".join(page.text for page in pages)) >= 0.99


def test_a_text_out_of_order_or_cut_off_keeps_less():
    assert kept("uno dos tres cuatro", "uno dos tres cuatro") == 1
    assert kept("uno dos tres cuatro", "tres cuatro uno dos") < 0.7
    assert kept("uno dos tres cuatro", "uno dos") < 0.5
