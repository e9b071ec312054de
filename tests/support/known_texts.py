"""Documents of every format with the same known text, and how much of a text another one keeps."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from difflib import SequenceMatcher
from itertools import count
from random import Random

from tests.support import documents

WORDS = ["presión", "caudal", "válvula", "compresor", "aceite", "filtro", "depósito", "máxima", "según", "manual"]
WORDS += ["IGE12-3", "PSV-204", "«purga»", "¿cuándo?", "11,5", "bar", "niño", "señal", "temperatura", "semanal"]


@dataclass(frozen=True)
class KnownText:
    """A document, its name, and what a person reads in it."""

    name: str
    data: bytes
    text: str


def known_texts(pages: int = 3, seed: int = 7) -> Iterator[KnownText]:
    """One of each format that holds text, with paragraphs, and a table where the format has them."""
    random = Random(seed)
    numbers = count()
    parts = [
        [" ".join(f"{word}{next(numbers)}" for word in random.choices(WORDS, k=60)) for _ in range(4)]
        for _ in range(pages)
    ]
    paragraphs = [paragraph for part in parts for paragraph in part]
    rows = [[f"V-{n}", random.choice(WORDS), f"{n} bar"] for n in range(20)]
    flow, table = "\n\n".join(paragraphs), "\n".join(" ".join(row) for row in rows)
    html = "".join(f"<p>{paragraph}</p>" for paragraph in paragraphs)
    html_table = (
        "<table>" + "".join(f"<tr>{''.join(f'<td>{cell}</td>' for cell in row)}</tr>" for row in rows) + "</table>"
    )
    yield KnownText("a.txt", flow.encode("cp1252"), flow)
    yield KnownText("a.md", flow.encode(), flow)
    yield KnownText("a.csv", "\n".join(";".join(row) for row in rows).encode(), table)
    yield KnownText("a.html", f"<!doctype html><meta charset=utf-8>{html}{html_table}".encode(), f"{flow} {table}")
    yield KnownText("a.docx", documents.word(*paragraphs, rows), f"{flow} {table}")
    yield KnownText("a.pptx", documents.powerpoint(*(("", part, "") for part in parts)), flow)
    yield KnownText("a.xlsx", documents.excel({"Hoja": rows}), f"Hoja {table}")
    yield KnownText("a.odt", documents.open_document("".join(f"<text:p>{text}</text:p>" for text in paragraphs)), flow)
    mail = documents.mail(flow)
    yield KnownText("a.eml", mail, f"Subject: Revisión de la válvula From: ana@example.org To: luis@example.org {flow}")
    yield KnownText("a.epub", documents.book(*("".join(f"<p>{text}</p>" for text in part) for part in parts)), flow)
    yield KnownText("a.rtf", documents.rtf(r"\par ".join(map(_rtf, paragraphs))), flow)
    yield KnownText("a.pdf", documents.text_pdf(*("\n".join(part) for part in parts)), flow)


def _rtf(text: str) -> str:
    return "".join(character if character.isascii() else rf"\u{ord(character)}?" for character in text)


def kept(text: str, found: str) -> float:
    """The share of the characters of a text, white space aside, that another one has in the same order, by words."""
    words, others = text.split(), found.replace("|", " ").split()
    matched = SequenceMatcher(None, words, others, autojunk=False).get_matching_blocks()
    characters = sum(len(word) for block in matched for word in words[block.a : block.a + block.size])
    return characters / sum(map(len, words))
