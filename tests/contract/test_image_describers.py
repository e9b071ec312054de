"""What every describer of images promises, and how the local one reads."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator, Sequence
from hashlib import sha256
from io import BytesIO

import pymupdf
import pytest
from PIL import Image, ImageDraw, ImageFont
from PIL.PngImagePlugin import PngInfo

from services.chassis.kernel.errors import UnavailableError
from services.chassis.models.limiter import ProcessQuota
from services.chassis.models.registry import ModelSettings, build_vision
from services.embeddings.adapters.describers.gemini import GeminiImageDescriber
from services.embeddings.adapters.describers.ocr import Line, OcrImageDescriber, in_reading_order
from services.embeddings.application.ports import ImageDescriber
from services.embeddings.domain.document import PageImage
from tests.support.gemini_server import API_KEY, GeminiServer, description, failure

# Pillow's own font has no accents; this one is in the PyMuPDF wheel, so no machine's fonts matter.
FONT = pymupdf.Font("helv").buffer
LABELS = ["Válvula de alivio", "Presión máxima: 16 bar", "Depósito de señal Nº 3", "Código P-101"]
PLACES = [(40, 30), (420, 34), (40, 150), (420, 150)]


def drawing(labels: Sequence[str] = LABELS) -> Image.Image:
    image = Image.new("RGB", (800, 220), "white")
    for place, label in zip(PLACES, labels, strict=False):
        ImageDraw.Draw(image).text(place, label, fill="black", font=ImageFont.truetype(BytesIO(FONT), 28))
    return image


def page_image(image: Image.Image, labels: Sequence[str] = ()) -> PageImage:
    written = PngInfo()
    if labels:
        written.add_itxt("labels", ", ".join(labels))
    encoded = BytesIO()
    image.save(encoded, "PNG", pnginfo=written)
    data = encoded.getvalue()
    return PageImage(sha256(data).hexdigest(), "image/png", data, *image.size)


DIAGRAM = page_image(drawing(), LABELS)
BLANK = page_image(Image.new("RGB", (200, 120), "white"))
BROKEN = PageImage("0" * 64, "image/png", DIAGRAM.data[:200], 800, 220)


@pytest.fixture
def gemini() -> Iterator[GeminiServer]:
    with GeminiServer() as server:
        yield server


@pytest.fixture
async def gemini_describer(gemini: GeminiServer) -> AsyncIterator[GeminiImageDescriber]:
    settings = ModelSettings(gemini_api_key=API_KEY, gemini_base_url=gemini.url, gemini_deadline_seconds=5)
    describer = GeminiImageDescriber(build_vision(settings, ProcessQuota(4)), "gemini")
    yield describer
    await describer.aclose()


@pytest.fixture(scope="module")
def ocr() -> Iterator[OcrImageDescriber]:
    describer = OcrImageDescriber()
    yield describer
    asyncio.run(describer.aclose())


@pytest.fixture(params=["ocr", "gemini_describer"])
def describer(request: pytest.FixtureRequest) -> ImageDescriber:
    return request.getfixturevalue(request.param)


async def test_failed_image_is_visible_and_spoils_no_other(describer: ImageDescriber):
    diagram, broken, blank = await describer.describe([DIAGRAM, BROKEN, BLANK])
    assert diagram.error is None
    for label in LABELS:
        assert label in diagram.text
    assert broken.text == ""
    assert broken.error is not None
    assert (blank.text, blank.error) == ("", None)


async def test_no_images_give_no_descriptions(describer: ImageDescriber):
    assert await describer.describe([]) == []


@pytest.mark.parametrize("angle", [90, 180])
async def test_turned_image_is_read_from_top_to_bottom_and_left_to_right(ocr: OcrImageDescriber, angle: int):
    (turned,) = await ocr.describe([page_image(drawing().rotate(angle, expand=True))])
    assert turned.text == f"{LABELS[0]} {LABELS[1]}\n{LABELS[2]} {LABELS[3]}"


@pytest.mark.parametrize("angle", [0, 90, 180, 270])
async def test_each_line_says_where_in_the_image_it_stands(ocr: OcrImageDescriber, angle: int):
    image = drawing().rotate(angle, expand=True)
    (read,) = await ocr.describe([page_image(image)])
    assert [read.text[start:end] for start, end, _ in read.spans] == LABELS
    ink = Image.eval(image.convert("L"), lambda value: 255 - value)
    for _, _, (x0, y0, x1, y1) in read.spans:
        ink.paste(0, (x0 // 10 - 3, y0 // 10 - 3, x1 // 10 + 3, y1 // 10 + 3))
    assert ink.getbbox() is None


async def test_letters_on_a_transparent_ground_and_of_a_palette_are_read(ocr: OcrImageDescriber):
    clear = Image.new("RGBA", (300, 80), (0, 0, 0, 0))
    ImageDraw.Draw(clear).text((20, 20), "Señal", fill="black", font=ImageFont.truetype(BytesIO(FONT), 28))
    palette = drawing(LABELS[:1]).crop((0, 0, 300, 80)).convert("P")
    read = await ocr.describe([page_image(clear), page_image(palette)])
    assert [one.text for one in read] == ["Señal", LABELS[0]]


async def test_word_parted_at_the_end_of_a_line_is_whole_and_stands_on_both(ocr: OcrImageDescriber):
    image = Image.new("RGB", (800, 220), "white")
    for y, text in ((30, "La presión del com-"), (110, "presor no baja")):
        ImageDraw.Draw(image).text((40, y), text, fill="black", font=ImageFont.truetype(BytesIO(FONT), 36))
    (found,) = await ocr.describe([page_image(image)])
    assert found.text == "La presión del compresor no baja"
    assert [found.text[span.start : span.end] for span in found.spans] == ["La presión del com", "presor no baja"]


async def test_thin_rule_is_no_text_and_no_failure(ocr: OcrImageDescriber):
    (rule,) = await ocr.describe([page_image(Image.new("RGB", (3000, 4), "black"))])
    assert (rule.text, rule.error) == ("", None)


async def test_ocr_downloads_nothing(ocr: OcrImageDescriber, monkeypatch: pytest.MonkeyPatch):
    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("a connection was opened")

    monkeypatch.setattr("socket.socket.connect", refuse)
    (blank,) = await ocr.describe([BLANK])
    assert blank.error is None


def test_rows_are_read_from_top_to_bottom_and_each_from_left_to_right():
    lines = [
        Line("d", 1, left=300, top=52, right=400, bottom=72),
        Line("c", 1, left=10, top=50, right=200, bottom=70),
        Line("b", 1, left=300, top=8, right=400, bottom=34),
        Line("a", 1, left=10, top=10, right=200, bottom=30),
        Line("title", 1, left=500, top=0, right=560, bottom=400),
    ]
    assert [[line.text for line in row] for row in in_reading_order(lines)] == [["a", "b"], ["c", "d"], ["title"]]


async def test_gemini_describer_gives_the_file_back_when_the_quota_is_used_up(
    gemini: GeminiServer, gemini_describer: GeminiImageDescriber
):
    gemini.then(failure(429, "RESOURCE_EXHAUSTED", retry_info="600s"))
    with pytest.raises(UnavailableError) as caught:
        await gemini_describer.describe([DIAGRAM] * 3)
    assert caught.value.code == "DESCRIBER_UNAVAILABLE"
    assert caught.value.retry_after > 200


@pytest.mark.parametrize(
    "reply",
    [
        description(None, "SAFETY"),
        description("Un esquema de", "MAX_TOKENS"),
        description(""),
        failure(400, "INVALID_ARGUMENT"),
    ],
)
async def test_image_that_gemini_refuses_carries_an_error_and_no_half_text(
    gemini: GeminiServer, gemini_describer: GeminiImageDescriber, reply: object
):
    gemini.then(reply)
    (refused,) = await gemini_describer.describe([DIAGRAM])
    assert refused.text == ""
    assert refused.error
