"""Makes the sample documents: a Spanish manual with a diagram, an English policy, a scanned page.

The texts lie in ``sample_texts``, one section a page. What the diagram says stands nowhere in the manual's text, and
the scanned page has no text at all, only a picture of it.
"""

from __future__ import annotations

import io
import re
import sys
from html import escape
from pathlib import Path

import reportlab
from PIL import Image, ImageDraw, ImageFont
from reportlab.lib.pagesizes import A4
from reportlab.lib.styles import getSampleStyleSheet
from reportlab.lib.utils import ImageReader
from reportlab.pdfgen.canvas import Canvas
from reportlab.platypus import Flowable, PageBreak, Paragraph, SimpleDocTemplate
from reportlab.platypus import Image as Figure

MANUAL = "manual-cefiro-c22.pdf"
POLICY = "retention-policy.pdf"
SCAN = "parte-3187-escaneado.pdf"

MANUAL_PAGES = 12
DIAGRAM_PAGE = 8
SHREDDING_PAGE = 3

_TEXTS = Path(__file__).with_name("sample_texts")
_FONT = Path(reportlab.__file__).parent / "fonts" / "Vera.ttf"
_FIGURE = "![figura]"


def write_samples(folder: Path) -> list[Path]:
    """Write the three documents into ``folder`` and return their paths. The same bytes each time."""
    folder.mkdir(parents=True, exist_ok=True)
    documents = {
        MANUAL: _document("manual.es.md", figure=_diagram()),
        POLICY: _document("policy.en.md"),
        SCAN: _scan("scan.es.md"),
    }
    for name, content in documents.items():
        (folder / name).write_bytes(content)
    return [folder / name for name in documents]


def _document(source: str, *, figure: Image.Image | None = None) -> bytes:
    title, *sections = re.split(r"^##? ", _read(source), flags=re.MULTILINE)[1:]
    styles = getSampleStyleSheet()
    styles["BodyText"].fontSize, styles["BodyText"].leading = 11, 16
    flow: list[Flowable] = []
    for section in sections:
        heading, *paragraphs = filter(None, section.split("\n"))
        flow += [Paragraph(title, styles["Italic"]), Paragraph(heading, styles["Heading1"])]
        for paragraph in paragraphs:
            if paragraph == _FIGURE and figure is not None:
                flow.append(Figure(_encoded(figure, "PNG"), width=450, height=450 * figure.height / figure.width))
            else:
                flow.append(Paragraph(escape(paragraph, quote=False), styles["BodyText"]))
        flow.append(PageBreak())
    content = io.BytesIO()
    SimpleDocTemplate(content, pagesize=A4, title=title.strip(), invariant=1).build(flow)
    return content.getvalue()


def _diagram() -> Image.Image:
    """A circuit of boxes and arrows whose labels carry the settings."""
    image = Image.new("RGB", (1500, 820), "white")
    draw = ImageDraw.Draw(image)
    font = ImageFont.truetype(_FONT, 26)
    boxes = {
        (60, 90): "Filtro de aire\nFA-101",
        (430, 90): "Válvula de admisión\nVA-110",
        (850, 90): "Bloque de rotores\nBR-120",
        (850, 400): "Separador\nSP-130",
        (430, 400): "Depósito de aire\nDP-140   270 litros",
    }
    for (left, top), label in boxes.items():
        draw.rectangle((left, top, left + 330, top + 130), outline="black", width=4)
        draw.multiline_text((left + 165, top + 65), label, "black", font, anchor="mm", align="center", spacing=12)
    arrows = [((390, 155), (430, 155)), ((760, 155), (850, 155)), ((1015, 220), (1015, 400)), ((850, 465), (760, 465))]
    for start, (x, y) in arrows:
        draw.line((*start, x, y), fill="black", width=4)
        draw.ellipse((x - 9, y - 9, x + 9, y + 9), fill="black")
    settings = [
        (60, 620, "Válvula de seguridad PSV-204: abre a 11,5 bar"),
        (60, 670, "Válvula de presión mínima VP-135: cierra a 4,2 bar"),
        (60, 720, "Termostato TC-31: abre a 71 °C"),
        (850, 620, "Presostato PS-12: para a 8,4 bar"),
        (850, 670, "Sonda de temperatura TT-9: dispara a 109 °C"),
    ]
    for left, top, label in settings:
        draw.text((left, top), label, "black", font)
    return image


def _scan(source: str) -> bytes:
    """A page as a scanner leaves it: a slightly turned grey picture."""
    page = Image.new("L", (1240, 1754), 250)
    text = _read(source).removeprefix("# ")
    ImageDraw.Draw(page).multiline_text((130, 150), text, 25, ImageFont.truetype(_FONT, 36), spacing=22)
    page = page.rotate(0.6, resample=Image.Resampling.BICUBIC, fillcolor=250)
    content = io.BytesIO()
    canvas = Canvas(content, pagesize=A4, invariant=1)
    canvas.drawImage(ImageReader(_encoded(page, "JPEG")), 0, 0, *A4)
    canvas.save()
    return content.getvalue()


def _encoded(image: Image.Image, format_name: str) -> io.BytesIO:
    content = io.BytesIO()
    image.save(content, format_name)
    content.seek(0)
    return content


def _read(source: str) -> str:
    return (_TEXTS / source).read_text("utf-8")


if __name__ == "__main__":
    write_samples(Path(sys.argv[1]))
