"""The sample documents keep what the demo says of them."""

from __future__ import annotations

from pathlib import Path

import pymupdf

from deploy.samples import DIAGRAM_PAGE, MANUAL, POLICY, SCAN, SHREDDING_PAGE, write_samples


def page_texts(path: Path) -> list[str]:
    with pymupdf.open(path) as document:
        return [" ".join(page.get_text().split()) for page in document]


def test_the_samples_are_what_the_demo_says(tmp_path: Path) -> None:
    write_samples(tmp_path)
    manual, policy, scan = (page_texts(tmp_path / name) for name in (MANUAL, POLICY, SCAN))
    assert len(manual) == 12
    assert "La figura siguiente" in manual[DIAGRAM_PAGE - 1]
    assert not [page for page in manual if "PSV-204" in page or "11,5" in page]
    assert len(policy) == 3
    assert "shredded on the premises" in policy[SHREDDING_PAGE - 1]
    assert scan == [""]


def test_the_samples_are_the_same_bytes_each_time(tmp_path: Path) -> None:
    first, second = write_samples(tmp_path / "first"), write_samples(tmp_path / "second")
    assert [path.read_bytes() for path in first] == [path.read_bytes() for path in second]
