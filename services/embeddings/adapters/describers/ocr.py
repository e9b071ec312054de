"""The local describer: the text that stands in an image, read by the models inside the ``rapidocr`` package.

It needs no network and no key; nothing is ever downloaded.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from importlib.resources import files
from io import BytesIO
from statistics import median
from typing import TYPE_CHECKING, Any, TypeVar

from services.chassis.kernel.text import sanitise
from services.chassis.models.telemetry import observed_call
from services.embeddings.domain.document import TENTHS, PageImage, PageKind, Rect, Span
from services.embeddings.domain.enrichment import ImageDescription
from services.embeddings.domain.placed_text import PlacedText

if TYPE_CHECKING:
    from PIL.Image import Image
    from rapidocr import RapidOCR

_T = TypeVar("_T")

_MODEL = "PP-OCRv6-small"
_LONGEST_SIDE = 1600  # 10-point text at 150 dpi reads as well as at 2,000, for a quarter less memory and time
_LEAST_SIDE = 10  # no letter fits into less: a rule or a border
_LEAST_SCORE = 0.6
_UPRIGHT_SCORE = 0.75  # upright lines score 0.8 to 1, lines upside down 0.4 to 0.7


@dataclass(frozen=True, slots=True)
class Line:
    """A piece of text with the box around it (pixels, y downwards) and the recogniser's confidence, 0 to 1."""

    text: str
    score: float
    left: float
    top: float
    right: float
    bottom: float

    @property
    def middle(self) -> float:
        """Half way from top to bottom."""
        return (self.top + self.bottom) / 2

    def stands_beside(self, other: Line) -> bool:
        """Whether the two are at one height, by half of the lower one."""
        return abs(self.middle - other.middle) < min(self.bottom - self.top, other.bottom - other.top) / 2

    def turned_back(self, quarters: int, width: float, height: float) -> Line:
        """Where the line stands in an image of that size that was turned so many quarters to the left to read it."""
        if quarters == 0:
            return self
        across = width if quarters % 2 else height
        before = replace(self, left=across - self.bottom, top=self.left, right=across - self.top, bottom=self.right)
        return before.turned_back(quarters - 1, width, height)


def in_reading_order(lines: Sequence[Line]) -> list[list[Line]]:
    """Rows of lines from top to bottom; those that stand beside one another, from left to right, are one row."""
    rows: list[list[Line]] = []
    for line in sorted(lines, key=lambda line: line.middle):
        if rows and line.stands_beside(rows[-1][0]):
            rows[-1].append(line)
        else:
            rows.append([line])
    return [sorted(row, key=lambda line: line.left) for row in rows]


class OcrImageDescriber:
    """Reads images one by one, on one thread and one processor core, so that workers side by side scale.

    The recogniser is the package's multilingual one, which knows Spanish letters. Lines below a confidence of 0.6 are
    left out. Text that is turned by a quarter or a half is read, too; the package's own classifier of orientation is
    off, because it turned one upright line in ten.
    """

    name = _MODEL
    page_kind = PageKind.OCR

    def __init__(self) -> None:
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="ocr")
        self._engine: RapidOCR | None = None

    async def describe(self, images: Sequence[PageImage]) -> list[ImageDescription]:
        """The text of each image, empty where none is written. An image that cannot be read carries an error."""
        if not images:
            return []
        engine = await self._on_thread(self._loaded)
        return [await self._describe(engine, image) for image in images]

    async def aclose(self) -> None:
        """Wait for the image in hand and end the thread."""
        await asyncio.to_thread(self._thread.shutdown, cancel_futures=True)

    async def _describe(self, engine: RapidOCR, image: PageImage) -> ImageDescription:
        try:
            with observed_call("rapidocr", _MODEL, "describe_image"):
                return await self._on_thread(_describe, engine, image.data)
        except Exception as error:  # noqa: BLE001  the libraries raise anything, and one image must not stop all
            return ImageDescription("", f"IMAGE_UNREADABLE: the image cannot be read ({type(error).__name__})")

    async def _on_thread(self, function: Callable[..., _T], *arguments: object) -> _T:
        return await asyncio.get_running_loop().run_in_executor(self._thread, function, *arguments)

    def _loaded(self) -> RapidOCR:
        if self._engine is None:
            self._engine = _load()
        return self._engine


def _describe(engine: RapidOCR, data: bytes) -> ImageDescription:
    image = _decode(data)
    if min(image.size) < _LEAST_SIDE:
        return ImageDescription("")
    lines, quarters = _read(engine, image)
    text, spans = "", []
    for row in in_reading_order([line for line in lines if line.score >= _LEAST_SCORE and line.text]):
        for index, line in enumerate(row):
            text += " " if index else "\n" if text else ""
            spans.append(Span(len(text), len(text) + len(line.text), _rect(line.turned_back(quarters, *image.size))))
            text += line.text
    placed = PlacedText(text, tuple(spans)).with_whole_words()
    return ImageDescription(placed.text, spans=placed.spans)


def _rect(line: Line) -> Rect:
    return Rect(*(round(length * TENTHS) for length in (line.left, line.top, line.right, line.bottom)))


def _load() -> RapidOCR:
    from rapidocr import RapidOCR  # noqa: PLC0415  takes a second, for many other libraries

    models = files("rapidocr") / "models"
    return RapidOCR(
        params={
            # With its path given, a model that is missing is an error; without, it would be downloaded.
            "Det.model_path": str(models / "PP-OCRv6_det_small.onnx"),
            "Rec.model_path": str(models / "PP-OCRv6_rec_small.onnx"),
            "Global.use_cls": False,
            # The default enlarges small images, which costs four times as much and reads no more.
            "Det.limit_type": "max",
            "Det.limit_side_len": _LONGEST_SIDE,
            "Global.max_side_len": _LONGEST_SIDE,
            "Global.text_score": 0.0,
            "Global.log_level": "error",
            "EngineConfig.onnxruntime.intra_op_num_threads": 1,
        }
    )


def _decode(data: bytes) -> Image:
    """The image on white ground, since transparent pixels may have any colour."""
    from PIL import Image  # noqa: PLC0415

    with Image.open(BytesIO(data)) as image:
        rgba = image.convert("RGBA")
    ground = Image.new("RGBA", rgba.size, "white")
    return Image.alpha_composite(ground, rgba).convert("RGB")


def _read(engine: RapidOCR, image: Image) -> tuple[list[Line], int]:
    """The lines of the image turned so that they are upright, and by how many quarters to the left that is."""
    lines, quarters = _recognise(engine, image), 0
    if lines and median((line.bottom - line.top) / (line.right - line.left) for line in lines) > 1.5:
        image, quarters = image.rotate(90, expand=True), 1
        lines = _recognise(engine, image)
    if lines and _typical_score(lines) < _UPRIGHT_SCORE:
        other_way = _recognise(engine, image.rotate(180))
        if _typical_score(other_way) > _typical_score(lines):
            return other_way, quarters + 2
    return lines, quarters


def _typical_score(lines: Sequence[Line]) -> float:
    return median([line.score for line in lines]) if lines else 0.0


def _recognise(engine: RapidOCR, image: Image) -> list[Line]:
    result: Any = engine(image)
    if not result.txts:
        return []
    return [
        Line(" ".join(sanitise(text).split()), float(score), *map(float, box.min(axis=0)), *map(float, box.max(axis=0)))
        for box, text, score in zip(result.boxes, result.txts, result.scores, strict=True)
    ]
