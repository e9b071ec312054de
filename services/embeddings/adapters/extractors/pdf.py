"""PDF, through PyMuPDF. The only module that knows it."""

from __future__ import annotations

import json
import sys
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from hashlib import sha256
from itertools import pairwise
from operator import itemgetter
from typing import Any

from PIL import Image

from services.embeddings.adapters.extractors import pdfium
from services.embeddings.adapters.extractors.format import Format, Source, encrypted
from services.embeddings.adapters.extractors.limits import TOO_DEEP, too_deep, whatever_breaks
from services.embeddings.adapters.extractors.pdf_rules import (
    MEDIA_TYPES,
    POINTS_PER_INCH,
    RENDER_DPI,
    UNDECODABLE,
    Furniture,
    is_garbled,
    layout_of,
    read_pages,
    recognise,
    touching,
    without_garbled_words,
)
from services.embeddings.adapters.extractors.pictures import MAX_SIDE, bounded, is_small
from services.embeddings.adapters.extractors.reading_order import Box, is_drawn_again, page_text, upright
from services.embeddings.domain.document import (
    TENTHS,
    Page,
    PageFault,
    PageImage,
    Rect,
    Span,
    is_nearly_empty,
)
from services.embeddings.domain.errors import page_not_found
from services.embeddings.domain.placed_text import PlacedText


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
# A character that is drawn again where it stands, to look bold, is one. MuPDF compares each with all others for that.
_EACH_ONCE = pymupdf.mupdf.FZ_STEXT_COLLECT_STYLES
_MAX_CHARACTERS_ONCE = 50_000
# What MuPDF says of an image of which it could not decode all: one that shows nothing then is no decoration.
_WITHOUT_DATA = "truncated image"
_INVISIBLE = 3
_RIGHTWARDS = 0.5
_LENGTHS = itemgetter("x", "y", "w", "h")
_BUFFER_BYTES = 64 * 1024


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
        yield from read_pages(document.page_count, reader.read)


def render(source: Source, number: int, size: int) -> Image.Image:
    """The page of that number as it is shown, its longer side so many pixels."""
    document = _open(source)
    if document is None:
        return pdfium.render(source, number, size)
    with document:
        source.limits.require("pages", document.page_count)
        if number > document.page_count:
            raise page_not_found(number)
        page = document.load_page(number - 1)
        width, height = page.rect.width, page.rect.height
        scale = size / max(width, height)
        # A side of no pixel is no image.
        matrix = pymupdf.Matrix(max(scale, 1 / width), max(scale, 1 / height))
        return _image(page.get_pixmap(matrix=matrix, alpha=False))


def _open(source: Source) -> Any:
    """The open document, None when it is too damaged."""
    try:
        document = pymupdf.open(source.path, filetype="pdf")
        if document.needs_pass:
            raise encrypted("the PDF cannot be read without a password")
        if document.is_pdf:
            _count_pages(document, source.limits.pages)
        return document if document.is_pdf and document.page_count else None
    except RuntimeError:
        return None


def _count_pages(document: Any, most: int) -> None:
    """Correct what the document says of the number of its pages, by as many as there are up to one more than ``most``.

    What it says is believed by MuPDF, which would leave out pages or look for ones that nobody made.
    """
    mupdf = pymupdf.mupdf
    root = mupdf.pdf_dict_getp(mupdf.pdf_trailer(mupdf.pdf_document_from_fz_document(document)), "Root/Pages")
    nodes, met, count = [root], set(), 0
    while nodes and count <= most:
        node = nodes.pop()
        kids, number = mupdf.pdf_dict_gets(node, "Kids"), mupdf.pdf_to_num(node)
        if not mupdf.pdf_is_array(kids):
            count += 1
        elif number not in met:
            met.add(number)
            nodes += [mupdf.pdf_array_get(kids, at) for at in range(min(mupdf.pdf_array_len(kids), most + 1))]
    if count != min(mupdf.pdf_to_int(mupdf.pdf_dict_gets(root, "Count")), most + 1):
        mupdf.pdf_dict_puts(root, "Count", mupdf.pdf_new_int(count))


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
        found, has_images = self._text(page, _TEXT_FLAGS)
        placed = self._placed_images(page) if has_images else []
        fault = PageFault.GARBLED if is_garbled(found.text) else None
        if fault:
            found = without_garbled_words(found)
        if fault or (is_nearly_empty(found.text) and (placed or _has_drawing(page))):
            with whatever_breaks():
                shown = _render(page, page.rect) or (pdfium.page_image(self._path, index) if placed else None)
                if shown is not None:
                    layout = layout_of(tuple(page.rect.br), found.spans)
                    layout = replace(layout, images=(layout.whole,))
                    return Page(number, found.text, (shown,), fault, layout)
        images = list(self._distinct_images(page, placed))
        layout = layout_of(tuple(page.rect.br), found.spans, tuple(place for _, place in images))
        if not (fault or found.text or images):
            if any(sign in pymupdf.TOOLS.mupdf_warnings(reset=0) for sign in TOO_DEEP):
                raise too_deep()
            # What stood here may have been in the part of a damaged file that is lost, and so may be the page itself.
            is_there = pymupdf.mupdf.pdf_is_dict(pymupdf.mupdf.pdf_page_from_fz_page(page.this).obj())
            if not is_there or (self._document.is_repaired and page.get_contents()):
                fault = PageFault.UNREADABLE
        return Page(number, found.text, tuple(image for image, _ in images), fault, layout)

    def _text(self, page: Any, flags: int) -> tuple[PlacedText, bool]:
        """The text of the page, and whether images stand on it."""
        text_page = page.get_textpage(flags=flags)
        blocks = _blocks(text_page)
        texts = [
            (found, block["lines"]) for found, block in zip(text_page.this, blocks, strict=True) if "lines" in block
        ]
        characters = sum(len(line["text"]) for _, lines in texts for line in lines)
        self._limits.require("characters", characters)
        boxes = [box for block, lines in texts for box in _boxes(block, lines)]
        if flags == _TEXT_FLAGS and characters <= _MAX_CHARACTERS_ONCE and is_drawn_again(box for _, box in boxes):
            return self._text(page, flags | _EACH_ONCE)
        found = page_text(boxes)
        if page.rotation:
            turning = _turning(page, TENTHS)
            found = found._replace(
                spans=tuple(
                    span._replace(rect=Rect(*map(round, pymupdf.Rect(span.rect) * turning))) for span in found.spans
                )
            )
        return found, any(block["type"] == "image" for block in blocks)

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
        visible = page.rect * ~_turning(page)
        for image in placed:
            image.setdefault("xref", next(iter(stored[image["width"], image["height"]]), 0))
            image["rect"] = pymupdf.Rect(image["bbox"]) & visible
        return [image for image in placed if not image["rect"].is_empty]

    def _distinct_images(self, page: Any, placed: list[dict[str, Any]]) -> Iterator[tuple[PageImage, Rect]]:
        """The images that count, each with where it stands first."""
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
                self._images[key] = PageImage.undecodable(key.encode(), UNDECODABLE)
                with whatever_breaks():
                    pymupdf.TOOLS.reset_mupdf_warnings()
                    shown = self._decode(page, pieces, rect)
                    if shown is not None or _WITHOUT_DATA not in pymupdf.TOOLS.mupdf_warnings():
                        self._images[key] = shown
            image = self._images[key]
            if image is not None:
                yield image, _in_tenths(rect * _turning(page))

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
            return _render(page, rect * _turning(page))
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
    return bounded(_image(pixmap))


def _image(pixmap: Any) -> Image.Image:
    return Image.frombytes("RGB", (pixmap.width, pixmap.height), pixmap.samples)


def _has_drawing(page: Any) -> bool:
    painted = pymupdf.Rect()
    for kind, box in page.get_bboxlog():
        if "path" in kind or "shade" in kind:
            painted |= pymupdf.Rect(box)
    return not painted.is_empty and not is_small(painted.width, painted.height)


def _is_ocr_layer(page: Any) -> bool:
    """Whether all text of the page is invisible, as that which a scanner's program lays under the image."""
    return all(span["type"] == _INVISIBLE for span in page.get_texttrace())


def _in_tenths(rect: Any) -> Rect:
    return Rect(*(round(length * TENTHS) for length in rect))


def _turning(page: Any, unit: int = 1) -> Any:
    """What turns lengths of the page as it is written, so many a point, to the page as it is shown.

    Unlike PyMuPDF's own it is right where the page has a user unit too, which everything else is scaled by.
    """
    width, height = page.rect.width * unit, page.rect.height * unit
    match page.rotation:
        case 90:
            return pymupdf.Matrix(0, 1, -1, 0, width, 0)
        case 180:
            return pymupdf.Matrix(-1, 0, 0, -1, width, height)
        case 270:
            return pymupdf.Matrix(0, -1, 1, 0, 0, height)
        case _:
            return pymupdf.Matrix(1, 1)


def _blocks(text_page: Any) -> list[dict[str, Any]]:
    """The blocks of the page with their lines, lengths in tenths of a point.

    MuPDF writes them all in the time that looking at each line from here would take for a few.
    """
    buffer = pymupdf.mupdf.fz_new_buffer(_BUFFER_BYTES)
    output = pymupdf.mupdf.FzOutput(buffer)
    pymupdf.mupdf.fz_print_stext_page_as_json(output, text_page.this, TENTHS)
    output.fz_close_output()
    blocks: list[dict[str, Any]] = json.loads(buffer.fz_buffer_extract())["blocks"]
    return blocks


def _boxes(found: Any, lines: list[dict[str, Any]]) -> Iterator[tuple[tuple[int, int], Box]]:
    """A block as one box where its lines run rightwards, each below the one before, else line by line."""
    texts = [line["text"].strip() for line in lines]
    rects = [_rect(line["bbox"]) for line in lines]
    if _is_ordinary(found, rects):
        spans, offset = [], 0
        for text, rect in zip(texts, rects, strict=True):
            if text:
                spans.append(Span(offset, offset + len(text), rect))
                offset += len(text) + 1
        if spans:
            x0, y0, x1, y1 = zip(*(rect for _, _, rect in spans), strict=True)
            placed = PlacedText("\n".join(filter(None, texts)), tuple(spans))
            yield (1, 0), Box(min(x0) / TENTHS, min(y0) / TENTHS, max(x1) / TENTHS, max(y1) / TENTHS, placed)
        return
    for line, text, rect in zip(found, texts, rects, strict=True):
        if text:
            direction = line.m_internal.dir
            turned = round(direction.x), round(direction.y)
            corners = rect.x0 / TENTHS, rect.y0 / TENTHS, rect.x1 / TENTHS, rect.y1 / TENTHS
            yield turned, upright(turned, corners, PlacedText(text, (Span(0, len(text), rect),)))


def _rect(box: dict[str, int]) -> Rect:
    """The rectangle, whose lengths are each cut off to a whole tenth."""
    x, y, width, height = _LENGTHS(box)
    return Rect(x, y, x + width + 2, y + height + 2)


def _is_ordinary(found: Any, rects: list[Rect]) -> bool:
    """Whether the lines of a block run rightwards, told by the first, each below the middle of the one before."""
    first = next(iter(found), None)
    if first is None or first.m_internal.dir.x < _RIGHTWARDS:
        return False
    return all(2 * below > top + bottom for (_, top, _, bottom), (_, below, _, _) in pairwise(rects))


FORMAT = Format(name="PDF", media_types=MEDIA_TYPES, recognise=recognise, read=read, render=render)
