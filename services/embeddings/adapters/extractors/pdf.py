"""PDF, through PyMuPDF. The only module that knows it."""

from __future__ import annotations

import sys
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from hashlib import sha256
from itertools import islice
from typing import Any

from PIL import Image

from services.embeddings.adapters.extractors import pdfium
from services.embeddings.adapters.extractors.format import Format, Source, encrypted
from services.embeddings.adapters.extractors.pdf_rules import (
    MEDIA_TYPES,
    POINTS_PER_INCH,
    RENDER_DPI,
    Furniture,
    is_garbled,
    is_nearly_empty,
    read_pages,
    recognise,
    touching,
    whatever_breaks,
    without_garbled_words,
)
from services.embeddings.adapters.extractors.pictures import MAX_SIDE, bounded, is_small
from services.embeddings.adapters.extractors.reading_order import Box, page_text, upright
from services.embeddings.domain.document import Page, PageFault, PageImage


@contextmanager
def _without(*modules: str) -> Iterator[None]:
    """Let an import find none of the modules."""
    hidden = {name: sys.modules.pop(name, None) for name in modules}
    sys.modules.update(dict.fromkeys(modules))  # type: ignore[arg-type]
    try:
        yield
    finally:
        for name, module in hidden.items():
            del sys.modules[name]
            if module is not None:
                sys.modules[name] = module


# Where PyMuPDF finds its layout models and Markdown writer it imports them, and with them onnxruntime, numpy and their
# threads: 1.5 s and 100 MB for what is not used here, and no process with threads may be forked.
with _without("pymupdf.layout", "pymupdf4llm"):
    import pymupdf

pymupdf.TOOLS.mupdf_display_errors(False)
pymupdf.TOOLS.mupdf_display_warnings(False)

# Ligatures are taken apart, an unknown glyph is U+FFFD and not any letter, images leave their place.
_TEXT_FLAGS = pymupdf.TEXT_MEDIABOX_CLIP | pymupdf.TEXT_PRESERVE_IMAGES
_INVISIBLE = 3


def read(source: Source) -> Iterator[Page]:
    """The pages: their text in reading order, and what stands on them as images; a page without text as an image.

    What MuPDF cannot open or decode, PDFium sometimes can.
    """
    document = _open(source)
    if document is None:
        yield from pdfium.read(source)
        return
    with document:
        source.limits.require("pages", document.page_count)
        reader = _PageReader(document, source)
        yield from read_pages(document.page_count, reader.read, is_repaired=document.is_repaired)


def _open(source: Source) -> Any:
    """The open document, None when it is too damaged."""
    try:
        document = pymupdf.open(source.path, filetype="pdf")
        if document.needs_pass:
            raise encrypted("the PDF cannot be read without a password")
        return document if document.is_pdf and document.page_count else None
    except RuntimeError:
        return None


class _PageReader:
    """Reads the pages of one document; remembers the images that it has met."""

    def __init__(self, document: Any, source: Source) -> None:
        self._document = document
        self._path = source.path
        self._limits = source.limits
        self._streams: dict[int, str] = {}
        self._images: dict[str, PageImage | None] = {}
        self._furniture = Furniture()

    def read(self, index: int) -> Page:
        page = self._document.load_page(index)
        number = index + 1
        text_page = page.get_textpage(flags=_TEXT_FLAGS)
        blocks = text_page.extractBLOCKS()
        self._limits.require("characters", sum(len(block[4]) for block in blocks))
        text = _text(text_page, [block for block in blocks if block[6] == 0])
        placed = self._placed_images(page) if any(block[6] == 1 for block in blocks) else []
        garbled = is_garbled(text)
        if garbled or (is_nearly_empty(text) and (placed or _has_drawing(page))):
            with whatever_breaks():
                shown = _render(page, page.rect) or (pdfium.page_image(self._path, index) if placed else None)
                if shown is not None and garbled:
                    return Page(number, without_garbled_words(text), (shown,), PageFault.GARBLED)
                if shown is not None:
                    return Page(number, text, (shown,))
        return Page(number, text, tuple(self._distinct_images(page, placed)))

    def _placed_images(self, page: Any) -> list[dict[str, Any]]:
        """The images that stand on the page, in the order in which they are painted."""
        placed = page.get_image_info()
        for image in placed:
            self._limits.require("pixels", image["width"] * image["height"])
        stored: defaultdict[tuple[int, int], list[int]] = defaultdict(list)
        for xref, _, width, height, *_ in page.get_images(full=True):
            stored[width, height].append(xref)
        if any(len(stored[image["width"], image["height"]]) > 1 for image in placed):
            placed = page.get_image_info(xrefs=True)  # tells images of one size apart, by decoding all of them
        visible = pymupdf.Rect(0, 0, page.cropbox.width, page.cropbox.height)
        for image in placed:
            image.setdefault("xref", next(iter(stored[image["width"], image["height"]]), 0))
            image["rect"] = pymupdf.Rect(image["bbox"]) & visible
        return [image for image in placed if not image["rect"].is_empty]

    def _distinct_images(self, page: Any, placed: list[dict[str, Any]]) -> Iterator[PageImage]:
        seen = set()
        for group in touching([tuple(image["rect"]) for image in placed]):
            pieces = [placed[index] for index in group]
            rect = pymupdf.Rect()
            for piece in pieces:
                rect |= piece["rect"]
            key = "+".join(self._key(page, piece) for piece in pieces)
            is_scan = abs(rect) > 0.9 * abs(page.rect) and _is_ocr_layer(page)
            if key in seen or is_scan or self._furniture.includes(key, width=rect.width, height=rect.height):
                continue
            seen.add(key)
            if key not in self._images:
                self._images[key] = None
                with whatever_breaks():
                    self._images[key] = self._decode(page, pieces, rect)
            image = self._images[key]
            if image is not None:
                yield image

    def _key(self, page: Any, image: dict[str, Any]) -> str:
        """The same for equal images, however often the file stores them; inline ones are all different."""
        xref = image["xref"]
        if not xref:
            return f"inline {page.number} {image['number']}"
        if xref not in self._streams:
            self._streams[xref] = sha256(self._document.xref_stream_raw(xref) or b"").hexdigest()
        return self._streams[xref]

    def _decode(self, page: Any, pieces: list[dict[str, Any]], rect: Any) -> PageImage | None:
        """The image alone where it stands upright, else (turned, masked, in pieces) what the page shows there."""
        (image, *others) = pieces
        a, b, c, d, _, _ = image["transform"]
        is_upright = a > 0 and d > 0 and abs(b) + abs(c) < 0.01 * (a + d) and not page.rotation
        is_whole = image["xref"] and image["colorspace"] and not image["has-mask"]
        if others or not is_whole or not is_upright:
            return _render(page, rect * page.rotation_matrix)
        if is_small(image["width"], image["height"]):
            return None
        pixmap = pymupdf.Pixmap(self._document, image["xref"])
        if pixmap.colorspace is None or pixmap.colorspace.n != 3 or pixmap.alpha:
            pixmap = pymupdf.Pixmap(pymupdf.Pixmap(pymupdf.csRGB, pixmap), 0)
        return _bounded(pixmap)


def _render(page: Any, rect: Any) -> PageImage | None:
    """What the page shows in the rectangle, at 200 dots per inch and at most 2000 a side."""
    scale = min(RENDER_DPI / POINTS_PER_INCH, MAX_SIDE / max(rect.width, rect.height))
    return _bounded(page.get_pixmap(matrix=pymupdf.Matrix(scale, scale), clip=rect, alpha=False))


def _bounded(pixmap: Any) -> PageImage | None:
    return bounded(Image.frombytes("RGB", (pixmap.width, pixmap.height), pixmap.samples))


def _has_drawing(page: Any) -> bool:
    painted = pymupdf.Rect()
    for kind, box in page.get_bboxlog():
        if "path" in kind or "shade" in kind:
            painted |= pymupdf.Rect(box)
    return not painted.is_empty and not is_small(painted.width, painted.height)


def _is_ocr_layer(page: Any) -> bool:
    """Whether all text of the page is invisible, as that which a scanner's program lays under the image."""
    return all(span["type"] == _INVISIBLE for span in page.get_texttrace())


def _text(text_page: Any, blocks: list[tuple[Any, ...]]) -> str:
    found = list(text_page.this)
    return page_text(piece for block in blocks for piece in _boxes(found[block[5]], block))


def _boxes(found: Any, block: tuple[Any, ...]) -> Iterator[tuple[tuple[int, int], Box]]:
    """A block as one box where its lines run rightwards, each below the one before, else line by line."""
    x0, y0, x1, y1, text = block[:5]
    texts = [line.strip() for line in text.rstrip("\n").split("\n")]
    if _is_ordinary(found, texts, width=x1 - x0, height=y1 - y0):
        shown = "\n".join(line for line in texts if line)
        if shown:
            yield (1, 0), Box(x0, y0, x1, y1, shown)
        return
    lines = list(found)
    if len(lines) != len(texts):  # a line outside the page has no text there
        texts = ["".join(chr(character.m_internal.c) for character in line).strip() for line in lines]
    for line, shown in zip(lines, texts, strict=True):
        if shown:
            direction, bbox = line.m_internal.dir, line.m_internal.bbox
            turned = round(direction.x), round(direction.y)
            yield turned, upright(turned, (bbox.x0, bbox.y0, bbox.x1, bbox.y1), shown)


def _is_ordinary(found: Any, texts: list[str], *, width: float, height: float) -> bool:
    """Whether the lines of a block run rightwards, each below the one before.

    Told by its first two lines, and by the height of a line in widths of a character, which is less where lines stand
    side by side. To look at every line of every page takes half as long as to read it.
    """
    first, second = (*(line.m_internal for line in islice(found, 2)), None, None)[:2]
    if first is None or first.dir.x < 0.5:
        return False
    if second is None:
        return True
    is_below = second.bbox.y0 > (first.bbox.y0 + first.bbox.y1) / 2
    return bool(is_below and height / len(texts) > 1.3 * width / max(1, *map(len, texts)))


FORMAT = Format(name="PDF", media_types=MEDIA_TYPES, recognise=recognise, read=read)
