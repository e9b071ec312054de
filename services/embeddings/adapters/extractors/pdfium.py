"""PDF, through PDFium: under a permissive licence, for those who cannot use PyMuPDF's."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing
from ctypes import c_ulong, c_void_p, cast
from dataclasses import replace
from hashlib import sha256
from itertools import chain, islice
from pathlib import Path
from typing import Any

import pypdfium2
from PIL import Image
from pypdfium2 import raw

from services.embeddings.adapters.extractors.format import Format, Source, corrupt, encrypted
from services.embeddings.adapters.extractors.limits import ExtractionLimits, whatever_breaks
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
from services.embeddings.adapters.extractors.reading_order import Box, page_text, upright
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

_LINE_ENDS = "\r\n"
# How PDFium marks a hyphen that parts a word at the end of a line; it leaves the line's end out.
_HYPHENS = "\x02\ufffe"
_UNKNOWN = "\ufffd"
# A space this many heights wide parts what stands side by side.
_MIN_SPACE = 1.5
_MAX_FORM_DEPTH = 15
_NOT_SHOWN = raw.FPDF_ANNOT_FLAG_HIDDEN | raw.FPDF_ANNOT_FLAG_NOVIEW
_FIELDS_OF_TEXT = (raw.FPDF_FORMFIELD_TEXTFIELD, raw.FPDF_FORMFIELD_COMBOBOX, raw.FPDF_FORMFIELD_LISTBOX)
_PASSWORD = 1 << 13
_DRAWN = (raw.FPDF_PAGEOBJ_TEXT, raw.FPDF_PAGEOBJ_IMAGE, raw.FPDF_PAGEOBJ_PATH, raw.FPDF_PAGEOBJ_SHADING)
_DRAWS_NOTHING = (raw.FPDF_TEXTRENDERMODE_INVISIBLE, raw.FPDF_TEXTRENDERMODE_CLIP)
# Each costs a drawing of the page, this large.
_MAX_LAYERS = 500
_LAYER_SIDE = 200


def read(source: Source) -> Iterator[Page]:
    """The pages: their text in reading order, and what stands on them as images; a page without text as an image."""
    with closing(_open(source.path)) as document:
        source.limits.require("pages", len(document))
        yield from read_pages(len(document), _PageReader(document, source.limits).read)


def page_image(path: Path, index: int) -> PageImage | None:
    """The page as an image, None when it shows nothing."""
    with closing(_open(path)) as document, closing(document[index]) as page:
        return bounded(_render(page))


def render(source: Source, number: int, size: int) -> Image.Image:
    """The page of that number as it is shown, its longer side so many pixels."""
    with closing(_open(source.path)) as document:
        source.limits.require("pages", len(document))
        if number > len(document):
            raise page_not_found(number)
        with closing(document[number - 1]) as page:
            image: Image.Image = page.render(scale=size / max(page.get_size())).to_pil().convert("RGB")
            return image


def _open(path: Path) -> Any:
    try:
        document = pypdfium2.PdfDocument(path)
        document.init_forms()
        return document
    except pypdfium2.PdfiumError as error:
        if error.err_code == raw.FPDF_ERR_PASSWORD:
            raise encrypted("the PDF cannot be read without a password") from error
        raise corrupt("the PDF is damaged: it cannot be opened") from error


class _PageReader:
    """Reads the pages of one document; remembers the images that it has met."""

    def __init__(self, document: Any, limits: ExtractionLimits) -> None:
        self._document = document
        self._limits = limits
        self._images: dict[str, PageImage | None] = {}
        self._furniture = Furniture()

    def read(self, index: int) -> Page:
        number = index + 1
        with closing(self._document[index]) as page:
            with closing(page.get_textpage()) as text_page:
                self._limits.require("characters", text_page.count_chars())
                found = page_text(chain(_Lines(page, text_page), _written_on(page)))
            kinds = (raw.FPDF_PAGEOBJ_IMAGE, raw.FPDF_PAGEOBJ_PATH, raw.FPDF_PAGEOBJ_SHADING)
            objects = list(page.get_objects(filter=kinds, max_depth=_MAX_FORM_DEPTH))
            placed = [(one, one.get_bounds()) for one in objects if one.type == raw.FPDF_PAGEOBJ_IMAGE]
            for image, _ in placed:
                width, height = image.get_px_size()
                self._limits.require("pixels", width * height)
            fault = PageFault.GARBLED if is_garbled(found.text) else None
            if fault:
                found = without_garbled_words(found)
            if fault or (is_nearly_empty(found.text) and (placed or _has_drawing(objects))):
                with whatever_breaks():
                    shown = bounded(_render(page))
                    if shown is not None:
                        layout = layout_of(page.get_size(), found.spans)
                        layout = replace(layout, images=(layout.whole,))
                        return Page(number, found.text, (shown,), fault, layout)
            images = list(self._distinct_images(page, placed))
            layout = layout_of(page.get_size(), found.spans, tuple(place for _, place in images))
            return Page(number, found.text, tuple(image for image, _ in images), fault, layout)

    def _distinct_images(self, page: Any, placed: list[tuple[Any, Any]]) -> Iterator[tuple[PageImage, Rect]]:
        """The images that count, each with where it stands first."""
        seen = set()
        rendered: Image.Image | None = None
        width, height = page.get_size()
        for group in touching([bounds for _, bounds in placed]):
            x0, y0, x1, y1 = zip(*(placed[index][1] for index in group), strict=True)
            corners = _on_display(page, (min(x0), min(y0), max(x1), max(y1)))
            size = corners[2] - corners[0], corners[3] - corners[1]
            key = "+".join(_key(placed[index][0]) for index in group)
            is_scan = size[0] * size[1] > 0.9 * width * height and _is_ocr_layer(page)
            if key in seen or is_scan or self._furniture.includes(key, width=size[0], height=size[1]):
                continue
            seen.add(key)
            if key not in self._images:
                self._images[key] = PageImage.undecodable(key.encode(), UNDECODABLE)
                with whatever_breaks():
                    rendered = rendered or _render(page)
                    scale = rendered.width / width
                    left, top, right, bottom = (round(corner * scale) for corner in corners)
                    shown = bounded(rendered.crop((left, top, right, bottom)))
                    if shown is None:
                        for index in group:  # raises where it shows nothing because it cannot be decoded
                            placed[index][0].get_bitmap().close()
                    self._images[key] = shown
            image = self._images[key]
            if image is not None:
                yield image, _in_tenths(corners)


class _Lines:
    """The lines of the page as upright boxes, cut where there is more than a word's space within one."""

    def __init__(self, page: Any, text_page: Any) -> None:
        self._page = page
        self._text_page = text_page
        self._hidden = _hidden_texts(page)
        self._characters = [self._character(index) for index in range(text_page.count_chars())]
        self._visible = page.get_bbox()

    def __iter__(self) -> Iterator[tuple[tuple[int, int], Box]]:
        start = 0
        for index, character in enumerate([*self._characters, "\n"]):
            if character in _HYPHENS:
                yield from self._segments(start, index, hyphen="-")
                start = index + 1
            elif character in _LINE_ENDS:
                yield from self._segments(start, index)
                start = index + 1

    def _segments(self, start: int, end: int, *, hyphen: str = "") -> Iterator[tuple[tuple[int, int], Box]]:
        first: int | None = None
        previous = start
        for index in [at for at in range(start, end) if not self._characters[at].isspace() and self._is_visible(at)]:
            if first is not None and index - previous > 1 and self._is_wide(previous, index):
                yield self._segment(first, previous)
                first = None
            first = index if first is None else first
            previous = index
        if first is not None:
            yield self._segment(first, previous, hyphen)

    def _character(self, index: int) -> str:
        """The character, U+FFFD where the font does not say which; the codes of a Type 3 font, nameless, mostly do.

        A line's end stands for one that is not shown.
        """
        if self._hidden and _address(raw.FPDFText_GetTextObject(self._text_page, index)) in self._hidden:
            return "\n"
        is_unknown = raw.FPDFText_HasUnicodeMapError(self._text_page, index) == 1
        if is_unknown and raw.FPDFText_GetFontInfo(self._text_page, index, None, 0, None) > 1:
            return _UNKNOWN
        return chr(raw.FPDFText_GetUnicode(self._text_page, index))

    def _is_visible(self, index: int) -> bool:
        """Whether any of the character is within what is shown of the page."""
        left, bottom, right, top = self._visible
        x0, y0, x1, y1 = self._place(index)
        return bool(left < x1 and x0 < right and bottom < y1 and y0 < top)

    def _is_wide(self, one: int, other: int) -> bool:
        ax0, ay0, ax1, ay1 = self._place(one)
        bx0, by0, bx1, by1 = self._place(other)
        distance = max(bx0 - ax1, ax0 - bx1, by0 - ay1, ay0 - by1)
        return distance > _MIN_SPACE * min(max(ax1 - ax0, ay1 - ay0), max(bx1 - bx0, by1 - by0))

    def _segment(self, first: int, last: int, hyphen: str = "") -> tuple[tuple[int, int], Box]:
        ax0, ay0, ax1, ay1 = self._place(first)
        bx0, by0, bx1, by1 = self._place(last)
        bounds = min(ax0, bx0), min(ay0, by0), max(ax1, bx1), max(ay1, by1)
        angle = raw.FPDFText_GetCharAngle(self._text_page, first)
        direction = round(math.cos(angle)), round(math.sin(angle))
        text = "".join(self._characters[first : last + 1]) + hyphen
        placed = PlacedText(text, (Span(0, len(text), _in_tenths(_on_display(self._page, bounds))),))
        # PDF counts upwards from the bottom, a reader downwards from the top.
        left, bottom, right, top = bounds
        return direction, upright(direction, (left, -top, right, -bottom), placed)

    def _place(self, index: int) -> tuple[float, float, float, float]:
        box = raw.FS_RECTF()
        raw.FPDFText_GetLooseCharBox(self._text_page, index, box)
        return box.left, box.bottom, box.right, box.top


def _hidden_texts(page: Any) -> set[int | None]:
    """The addresses of the texts in layers that are not shown: PDFium counts them among the text of the page.

    It only tells whether a layer is shown by what it draws of the texts in there alone. A form may be a layer too.
    """
    layers: defaultdict[tuple[int | None, ...], list[Any]] = defaultdict(list)
    for text in page.get_objects(filter=(raw.FPDF_PAGEOBJ_TEXT,), max_depth=_MAX_FORM_DEPTH):
        marks = (raw.FPDFPageObj_GetMark(text, at) for at in range(raw.FPDFPageObj_CountMarks(text)))
        layer = (
            text.container and _address(text.container.raw),
            *(_address(mark) for mark in marks if _is_layer(mark)),
        )
        if any(layer) and raw.FPDFTextObj_GetTextRenderMode(text) not in _DRAWS_NOTHING:
            layers[layer].append(text)
    if not layers:
        return set()
    hidden = set()
    objects = list(page.get_objects(filter=_DRAWN, max_depth=_MAX_FORM_DEPTH))
    _set_active(objects, False)
    for texts in islice(layers.values(), _MAX_LAYERS):
        _set_active(texts, True)
        drawn = page.render(
            scale=_LAYER_SIDE / max(page.get_size()), fill_color=(0, 0, 0, 0), may_draw_forms=False, draw_annots=False
        )
        if not any(bytes(drawn.buffer)):
            hidden |= {_address(text.raw) for text in texts}
        _set_active(texts, False)
    _set_active(objects, True)
    return hidden


def _is_layer(mark: Any) -> bool:
    name = (raw.FPDF_WCHAR * 3)()
    raw.FPDFPageObjMark_GetName(mark, name, 6, c_ulong())
    return bytes(name).decode("utf-16-le") == "OC\0"


def _set_active(objects: Iterable[Any], is_active: bool) -> None:
    for one in objects:
        raw.FPDFPageObj_SetIsActive(one, is_active)


def _address(pointer: Any) -> int | None:
    return cast(pointer, c_void_p).value


def _written_on(page: Any) -> Iterator[tuple[tuple[int, int], Box]]:
    """What is filled into the fields of a form, and written upon the page: PDFium does not count it among its text."""
    for index in range(raw.FPDFPage_GetAnnotCount(page)):
        annotation = raw.FPDFPage_GetAnnot(page, index)
        try:
            text = _shown_text(page.formenv, annotation)
            rect = raw.FS_RECTF()
            if text.strip() and raw.FPDFAnnot_GetRect(annotation, rect):
                bounds = rect.left, rect.bottom, rect.right, rect.top
                placed = PlacedText(text, (Span(0, len(text), _in_tenths(_on_display(page, bounds))),))
                yield (1, 0), Box(rect.left, -rect.top, rect.right, -rect.bottom, placed)
        finally:
            raw.FPDFPage_CloseAnnot(annotation)


def _shown_text(forms: Any, annotation: Any) -> str:
    if raw.FPDFAnnot_GetFlags(annotation) & _NOT_SHOWN:
        return ""
    if raw.FPDFAnnot_GetSubtype(annotation) == raw.FPDF_ANNOT_FREETEXT:
        return _string(raw.FPDFAnnot_GetStringValue, annotation, b"Contents")
    is_text = forms is not None and raw.FPDFAnnot_GetFormFieldType(forms, annotation) in _FIELDS_OF_TEXT
    if is_text and not raw.FPDFAnnot_GetFormFieldFlags(forms, annotation) & _PASSWORD:
        return _string(raw.FPDFAnnot_GetFormFieldValue, forms, annotation)
    return ""


def _string(read: Callable[..., int], *arguments: Any) -> str:
    """What a function of PDFium writes as UTF-16 into a buffer that it first tells the length of."""
    buffer = (raw.FPDF_WCHAR * (read(*arguments, None, 0) // 2))()
    read(*arguments, buffer, len(buffer) * 2)
    return bytes(buffer).decode("utf-16-le", "ignore").rstrip("\0").replace("\r\n", "\n").replace("\r", "\n")


def _in_tenths(corners: tuple[float, float, float, float]) -> Rect:
    return Rect(*(round(length * TENTHS) for length in corners))


def _render(page: Any) -> Image.Image:
    """The page as a reader sees it, at 200 dots per inch and at most 2000 a side."""
    scale = min(RENDER_DPI / POINTS_PER_INCH, MAX_SIDE / max(page.get_size()))
    image: Image.Image = page.render(scale=scale).to_pil().convert("RGB")
    return image


def _on_display(page: Any, bounds: tuple[float, float, float, float]) -> tuple[float, float, float, float]:
    """Where a rectangle of the page stands on the page as it is shown: left, top, right, bottom from its corner."""
    left, bottom, right, top = page.get_bbox()
    x0, y0, x1, y1 = max(bounds[0], left), max(bounds[1], bottom), min(bounds[2], right), min(bounds[3], top)
    match page.get_rotation():
        case 90:
            return y0 - bottom, x0 - left, y1 - bottom, x1 - left
        case 180:
            return right - x1, y0 - bottom, right - x0, y1 - bottom
        case 270:
            return top - y1, right - x1, top - y0, right - x0
        case _:
            return x0 - left, top - y1, x1 - left, top - y0


def _key(image: Any) -> str:
    """The same for equal images, however often the file stores them."""
    return sha256(bytes(image.get_data()) + repr(image.get_px_size()).encode()).hexdigest()


def _has_drawing(objects: list[Any]) -> bool:
    bounds = [one.get_bounds() for one in objects]
    if not bounds:
        return False
    x0, y0, x1, y1 = zip(*bounds, strict=True)
    return not is_small(max(x1) - min(x0), max(y1) - min(y0))


def _is_ocr_layer(page: Any) -> bool:
    """Whether all text of the page is invisible, as that which a scanner's program lays under the image."""
    texts = page.get_objects(filter=(raw.FPDF_PAGEOBJ_TEXT,), max_depth=_MAX_FORM_DEPTH)
    return all(raw.FPDFTextObj_GetTextRenderMode(text) == raw.FPDF_TEXTRENDERMODE_INVISIBLE for text in texts)


FORMAT = Format(name="PDF", media_types=MEDIA_TYPES, recognise=recognise, read=read, render=render, option="pdfium")
