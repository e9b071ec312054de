"""What extraction keeps of a text, and what it costs.

Kept: documents of every format with a known text, and the share of its characters that come out in reading order.
Pages a second: text PDFs read in this process (reading order, boxes) against bare ``get_text``, by processor time;
then through the sandbox by the clock, with more documents at once. What the child process costs is seen on a text
file of one line. With ``--corpus`` the two readers of PDF are compared on the files of a folder.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import json
import statistics
import tempfile
import time
from collections.abc import Iterable
from pathlib import Path
from random import Random
from typing import Any

from services.embeddings.adapters.extractors.limits import ExtractionLimits
from services.embeddings.adapters.extractors.pdf import pymupdf
from services.embeddings.adapters.extractors.registry import read_document
from services.embeddings.adapters.extractors.sandbox import SandboxedExtractor
from services.embeddings.domain.errors import ExtractionError
from tests.support import documents
from tests.support.known_texts import WORDS, kept, known_texts

READERS = ("pymupdf", "pdfium")


def read(path: Path, name: str, reader: str, limits: ExtractionLimits | None = None) -> list[str]:
    """The texts of a document's pages, read in this process."""
    options = frozenset([reader])
    _, pages = read_document(path, name=name, media_type="", limits=limits or ExtractionLimits(), options=options)
    return [page.text for page in pages]


def measure_kept(folder: Path) -> dict[str, float]:
    """The share kept, by format; PDF by either reader."""
    shares = {}
    for known in known_texts(pages=10):
        path = folder / known.name
        path.write_bytes(known.data)
        for reader in READERS if known.name.endswith(".pdf") else READERS[:1]:
            name = f"{known.name.removeprefix('a.')} {reader}" if known.name.endswith(".pdf") else known.name[2:]
            shares[name] = round(kept(known.text, "\n".join(read(path, known.name, reader))), 4)
    return shares


def text_pdf(path: Path, pages: int, seed: int) -> None:
    """A PDF of dense pages: about 50 lines and 4,000 characters each."""
    random = Random(seed)
    path.write_bytes(documents.text_pdf(*(" ".join(random.choices(WORDS, k=560)) for _ in range(pages))))


def bare(path: Path) -> int:
    """Read every page with ``get_text`` alone. Return how many there are."""
    with pymupdf.open(path) as document:
        for page in document:
            page.get_text()
        return int(document.page_count)


def measure_speed(path: Path, rounds: int) -> dict[str, float]:
    """Pages a second of processor time in this process: bare, and by each reader; the ratios are to bare."""
    seconds: dict[str, list[float]] = {"bare": [], **{reader: [] for reader in READERS}}
    pages = 0
    gc.freeze()  # as the process that documents are read in
    for _ in range(rounds):
        for name, times in seconds.items():
            started = time.process_time()
            pages = bare(path) if name == "bare" else len(read(path, path.name, name))
            times.append(time.process_time() - started)
    best = {name: min(times) for name, times in seconds.items()}
    speeds = {f"{name} pages/s": round(pages / taken, 1) for name, taken in best.items()}
    return speeds | {f"{name} ratio": round(best["bare"] / best[name], 2) for name in READERS}


async def measure_sandbox(folder: Path, pages: int, rounds: int) -> dict[str, Any]:
    """Pages a second by the clock with so many documents at once, and what a document of one line costs."""
    paths = [folder / f"{n}.pdf" for n in range(4)]
    for seed, path in enumerate(paths):
        text_pdf(path, pages, seed)
    (folder / "line.txt").write_text("Una línea.")
    extractor = SandboxedExtractor(ExtractionLimits())

    async def extract(path: Path) -> float:
        started = time.perf_counter()
        await extractor.extract(path, name=path.name, media_type="")
        return time.perf_counter() - started

    started = await extract(folder / "line.txt")
    costs = [await extract(folder / "line.txt") for _ in range(50)]
    speeds = {}
    for at_once in (1, 2, 4):
        best = float("inf")
        for _ in range(rounds):
            began = time.perf_counter()
            await asyncio.gather(*map(extract, paths[:at_once]))
            best = min(best, time.perf_counter() - began)
        speeds[f"{at_once} at once, pages/s"] = round(at_once * pages / best, 1)
    await extractor.aclose()
    return {
        "first document, s": round(started, 2),
        "document of a line, ms": round(1000 * statistics.median(costs), 1),
        **speeds,
    }


def compare(paths: Iterable[Path]) -> dict[str, Any]:
    """How far the two readers agree on files that are not ours, and what each makes of them."""
    agreement: list[float] = []
    outcomes: dict[str, dict[str, int]] = {reader: {} for reader in READERS}
    apart: list[tuple[float, str]] = []
    limits = ExtractionLimits(pages=300, characters=300_000)
    for path in paths:
        texts = {}
        for reader in READERS:
            try:
                texts[reader] = "\n".join(read(path, path.name, reader, limits))
                outcome = "TEXT" if texts[reader].strip() else "NO TEXT"
            except ExtractionError as error:
                outcome = error.code
            outcomes[reader][outcome] = outcomes[reader].get(outcome, 0) + 1
        if all(len(texts.get(reader, "").split()) > 5 for reader in READERS):
            # Of long texts the beginning: the comparison takes time with the square of the length.
            first, second = (" ".join(texts[reader].split()[:1000]) for reader in READERS)
            share = (kept(first, second) + kept(second, first)) / 2
            agreement.append(share)
            apart.append((round(share, 3), path.name))
    return {
        "outcomes": outcomes,
        "files compared": len(agreement),
        "words in common, mean": round(statistics.mean(agreement), 4),
        "words in common, median": round(statistics.median(agreement), 4),
        "least alike": sorted(apart)[:8],
    }


def main() -> None:
    """Measure and print one line of JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pages", type=int, default=40, help="of the PDFs that are timed")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--corpus", type=Path, help="a folder of PDFs on which the two readers are compared")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        text_pdf(folder / "text.pdf", arguments.pages, seed=1)
        figures: dict[str, Any] = {
            "kept": measure_kept(folder),
            "one process": measure_speed(folder / "text.pdf", arguments.rounds),
            "sandbox": asyncio.run(measure_sandbox(folder, arguments.pages, arguments.rounds)),
        }
        if arguments.corpus:
            figures["corpus"] = compare(sorted(arguments.corpus.rglob("*.pdf")))
    print(json.dumps(figures, ensure_ascii=False))


if __name__ == "__main__":
    main()
