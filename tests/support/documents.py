"""Makes documents of every kind, with known text on known pages, and documents that are out to do harm."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from email.message import EmailMessage
from io import BytesIO
from zipfile import ZIP_DEFLATED, ZipFile

import docx
import openpyxl
import pptx
from PIL import Image, ImageDraw, ImageFont
from pptx.util import Inches

# Imported there without the layout models that it would otherwise load.
from services.embeddings.adapters.extractors.pdf import pymupdf

A4 = (595, 842)
MARGIN = 50
LEADING = 14
FONT_SIZE = 10


@dataclass(frozen=True)
class Line:
    """A line of text whose baseline starts at (x, y) of the page as a reader sees it, in points."""

    x: float
    y: float
    text: str


def lines_of(text: str, *, x: float = MARGIN, y: float = MARGIN, characters: int = 90) -> list[Line]:
    """The text in lines of at most so many characters, from (x, y) downwards."""
    lines, line = [], ""
    for word in text.split():
        if line and len(line) + 1 + len(word) > characters:
            lines.append(line)
            line = word
        else:
            line = f"{line} {word}".strip()
    return [Line(x, y + LEADING * n, line) for n, line in enumerate([*lines, line])]


def pdf(pages: Iterable[Sequence[Line]], *, rotation: int = 0, **save_options: object) -> bytes:
    """A PDF of upright A4 pages, however they are turned inside."""
    document = pymupdf.open()
    for lines in pages:
        turned = rotation in (90, 270)
        page = document.new_page(width=A4[turned], height=A4[not turned])
        page.set_rotation(rotation)
        for line in lines:
            point = pymupdf.Point(line.x, line.y) * page.derotation_matrix
            page.insert_text(point, line.text, fontsize=FONT_SIZE, rotate=rotation)
    if document.page_count == 0:
        document.new_page()
    return document.tobytes(**save_options)


def text_pdf(*pages: str, **options: object) -> bytes:
    """A PDF with one text a page."""
    return pdf([lines_of(text) for text in pages], **options)


def encrypted_pdf(text: str, *, user_password: str) -> bytes:
    """A PDF that needs a password to be read, or with an empty one only to be changed."""
    return text_pdf(text, encryption=pymupdf.PDF_ENCRYPT_AES_256, owner_pw="owner", user_pw=user_password)


def pdf_with_images(*pages: Sequence[tuple[bytes, tuple[float, float, float, float]]], text: str = "") -> bytes:
    """A PDF whose pages show encoded images in rectangles, after the text."""
    document = pymupdf.open()
    for images in pages:
        page = document.new_page(width=A4[0], height=A4[1])
        for line in lines_of(text):
            page.insert_text((line.x, line.y), line.text, fontsize=FONT_SIZE)
        for data, rect in images:
            page.insert_image(rect, stream=data, keep_proportion=False)
    return document.tobytes()


def scanned_pdf(*pages: Sequence[str], rotation: int = 0, layer: str = "") -> bytes:
    """A PDF of pages that are images of text, with the ``layer`` of invisible text that scanners put under them."""
    document = pymupdf.open()
    for lines in pages:
        page = document.new_page(width=A4[0], height=A4[1])
        page.insert_image(page.rect, stream=picture(lines, size=A4))
        for line in lines_of(layer) if layer else ():
            page.insert_text((line.x, line.y), line.text, fontsize=FONT_SIZE, render_mode=3)
        page.set_rotation(rotation)
    return document.tobytes()


def merged_pdf(*files: bytes) -> bytes:
    """The pages of several PDFs in one."""
    merged = pymupdf.open()
    for data in files:
        with pymupdf.open("pdf", data) as document:
            merged.insert_pdf(document)
    return merged.tobytes()


def drawn_pdf() -> bytes:
    """A PDF of one page with a drawing and no text."""
    document = pymupdf.open()
    page = document.new_page()
    for n in range(5):
        page.draw_circle((300, 300), 40 * n + 10)
    return document.tobytes()


def garbled_pdf(text: str) -> bytes:
    """A PDF whose font says that each of its characters is one of the private ones of Unicode."""
    mapping = b"1 begincodespacerange <00> <FF> endcodespacerange 1 beginbfrange <20> <FF> <E020> endbfrange"
    shown = one_page_pdf(
        b"BT /F2 12 Tf 50 700 Td (" + text.encode("latin-1") + b") Tj ET",
        b"/Font << /F2 6 0 R >>",
        b"<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica /ToUnicode 7 0 R >>",
        stream(b"/CIDInit /ProcSet findresource begin begincmap " + mapping + b" endcmap end"),
    )
    return shown.replace(b"/Font << /F1 5 0 R >> ", b"")


def nameless_glyphs_pdf(text: str) -> bytes:
    """A PDF whose font calls its glyphs by names that mean nothing, and does not say which characters they are."""
    codes = sorted(set(text.encode("latin-1")) - {32})
    names = b" ".join(b"%d /q%c%c" % (code, 97 + n // 26, 97 + n % 26) for n, code in enumerate(codes))
    return one_page_pdf(
        b"BT /F2 12 Tf 50 700 Td (" + text.encode("latin-1") + b") Tj ET",
        b"/Font << /F2 6 0 R >>",
        b"<< /Type /Font /Subtype /Type1 /BaseFont /Nobody /Encoding << /Type /Encoding /Differences [%s] >>"
        b" /FirstChar 32 /LastChar 255 /Widths [%s] /FontDescriptor 7 0 R >>" % (names, b"600 " * 224),
        b"<< /Type /FontDescriptor /FontName /Nobody /Flags 4 /FontBBox [0 0 1000 1000] /ItalicAngle 0 /Ascent 800"
        b" /Descent -200 /CapHeight 700 /StemV 80 >>",
    ).replace(b"/Font << /F1 5 0 R >> ", b"")


def unicode_pdf(text: str) -> bytes:
    """A PDF whose font says of each of its characters which one it is, line by line of some 60."""
    characters = sorted(set(text) - {" "})
    code_of = {" ": 32} | {character: 161 + n for n, character in enumerate(characters)}
    pairs = b" ".join(b"<%02x> <%04x>" % (code, ord(character)) for character, code in code_of.items())
    mapping = b"1 begincodespacerange <00> <FF> endcodespacerange %d beginbfchar %s endbfchar" % (len(code_of), pairs)
    shown = b"".join(
        b"<%s> Tj 0 -14 Td " % bytes(code_of[character] for character in line.text).hex().encode()
        for line in lines_of(text, characters=60)
    )
    return one_page_pdf(
        b"BT /F2 10 Tf 50 700 Td " + shown + b"ET",
        b"/Font << /F2 6 0 R >>",
        b"<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica /ToUnicode 7 0 R >>",
        stream(b"/CIDInit /ProcSet findresource begin begincmap " + mapping + b" endcmap end"),
    ).replace(b"/Font << /F1 5 0 R >> ", b"")


def filled_form_pdf(text: str, *, field: str, note: str) -> bytes:
    """A PDF of a page with a text, a field of a form that is filled in beside it, and a note written on the page."""
    document = pymupdf.open()
    page = document.new_page(width=A4[0], height=A4[1])
    page.insert_text((50, 100), text, fontsize=FONT_SIZE)
    widget = pymupdf.Widget()
    widget.rect, widget.field_name, widget.field_value = pymupdf.Rect(120, 86, 300, 106), "a", field
    widget.field_type = pymupdf.PDF_WIDGET_TYPE_TEXT
    page.add_widget(widget)
    page.add_freetext_annot(pymupdf.Rect(50, 300, 300, 330), note)
    return document.tobytes()


def cropped_pdf(lines: Sequence[Line], shown: tuple[float, float, float, float]) -> bytes:
    """A PDF of an A4 page of which only a rectangle is shown."""
    document = pymupdf.open("pdf", pdf([lines]))
    document[0].set_cropbox(pymupdf.Rect(shown))
    return document.tobytes()


def layered_pdf(shown: str, hidden: str) -> bytes:
    """A PDF whose page shows a text in one layer and hides another, as marked content and as a form, in a second."""
    resources = b"/Properties << /A 6 0 R /B 7 0 R >> /XObject << /X 8 0 R /Y 9 0 R >>"
    content = b"".join(
        b"/OC /%s BDC BT /F1 12 Tf 50 %d Td (%s) Tj ET EMC\n" % (name, y, text.encode("latin-1"))
        for name, y, text in ((b"A", 700, shown), (b"B", 700, hidden), (b"B", 650, hidden))
    )
    forms = (
        stream(
            b"BT /F1 12 Tf 50 %d Td (%s) Tj ET" % (y, text.encode("latin-1")),
            b"/Type /XObject /Subtype /Form /BBox [0 0 595 842] /OC %d 0 R /Resources << /Font << /F1 5 0 R >> >>"
            % layer,
        )
        for y, text, layer in ((600, shown, 6), (550, hidden, 7))
    )
    layers = (b"<< /Type /OCG /Name (A) >>", b"<< /Type /OCG /Name (A) >>")
    whole = one_page_pdf(content + b"/X Do /Y Do", resources, *layers, *forms)
    properties = b" /OCProperties << /OCGs [6 0 R 7 0 R] /D << /OFF [7 0 R] >> >>"
    return whole.replace(b"/Type /Catalog", b"/Type /Catalog" + properties)


def inline_image_pdf() -> bytes:
    """A PDF whose page holds an image in its own content."""
    pixels = b"".join(b"%02x" % (n * 7 % 256) for n in range(64 * 64))
    image = b"q 200 0 0 200 100 400 cm BI /W 64 /H 64 /CS /G /BPC 8 /F /AHx ID " + pixels + b"> EI Q"
    return one_page_pdf(b"BT /F1 12 Tf 50 700 Td (La figura muestra las presiones.) Tj ET\n" + image)


def broken_image_pdf(text: str, *, code: str = "DCT") -> bytes:
    """A PDF whose page shows an image of which no byte can be decoded."""
    image = (
        b"<< /Type /XObject /Subtype /Image /Width 200 /Height 200 /ColorSpace /DeviceRGB /BitsPerComponent 8"
        b" /Filter /%sDecode /Length 4 >>\nstream\nnada\nendstream" % code.encode()
    )
    words = b"BT /F1 12 Tf 50 700 Td (" + text.encode("latin-1") + b") Tj ET\n"
    return one_page_pdf(words + b"q 200 0 0 200 100 400 cm /I Do Q", b"/XObject << /I 6 0 R >>", image)


def picture(
    lines: Sequence[str] = ("P1: 12 bar",), *, size: tuple[int, int] = (320, 200), kind: str = "PNG", mode: str = "RGB"
) -> bytes:
    """An encoded image with lines of text."""
    file = BytesIO()
    image = drawn(lines, size)
    (image.convert("I").convert(mode) if mode == "I;16" else image.convert(mode)).save(file, kind)
    return file.getvalue()


def enhanced_metafile(*, size: tuple[int, int]) -> bytes:
    """The header of an EMF image of so many pixels at 72 dots per inch: nothing is drawn in it."""
    inches = [round(length * 2540 / 72) for length in size]
    return struct.pack("<10i4s16i", 1, 108, 0, 0, *size, 0, 0, *inches, b" EMF", 1 << 16, *[0] * 15)


def drawn(lines: Sequence[str], size: tuple[int, int]) -> Image.Image:
    """An image with lines of text."""
    image = Image.new("RGB", size, "white")
    draw = ImageDraw.Draw(image)
    for n, line in enumerate(lines):
        draw.text((10, 10 + 30 * n), line, fill="black", font=ImageFont.load_default(20))
    return image


def strips(data: bytes, count: int) -> list[bytes]:
    """An encoded image cut into so many strips from the top."""
    files = []
    with Image.open(BytesIO(data)) as image:
        height = image.height // count
        for n in range(count):
            file = BytesIO()
            image.crop((0, n * height, image.width, (n + 1) * height)).save(file, "PNG")
            files.append(file.getvalue())
    return files


def tiff(*pages: Sequence[str]) -> bytes:
    """A TIFF with a frame for each page."""
    first, *others = (drawn(lines, (320, 200)) for lines in pages)
    file = BytesIO()
    first.save(file, "TIFF", save_all=True, append_images=others)
    return file.getvalue()


def raw_pdf(*objects: bytes) -> bytes:
    """A PDF of raw objects, numbered from 1; the first is the catalogue."""
    file = BytesIO(b"")
    file.write(b"%PDF-1.7\n")
    offsets = []
    for number, content in enumerate(objects, start=1):
        offsets.append(file.tell())
        file.write(b"%d 0 obj\n%s\nendobj\n" % (number, content))
    start = file.tell()
    file.write(b"xref\n0 %d\n0000000000 65535 f \n" % (len(objects) + 1))
    file.writelines(b"%010d 00000 n \n" % offset for offset in offsets)
    file.write(b"trailer\n<< /Size %d /Root 1 0 R >>\nstartxref\n%d\n%%%%EOF\n" % (len(objects) + 1, start))
    return file.getvalue()


def stream(data: bytes, dictionary: bytes = b"") -> bytes:
    """A compressed PDF stream."""
    packed = zlib.compress(data, 9)
    return b"<< /Length %d /Filter /FlateDecode %s >>\nstream\n%s\nendstream" % (len(packed), dictionary, packed)


def one_page_pdf(content: bytes, resources: bytes = b"", *others: bytes) -> bytes:
    """A PDF of one page with raw content; ``others`` are the objects from number 6 on, number 5 is Helvetica."""
    return raw_pdf(
        b"<< /Type /Catalog /Pages 2 0 R >>",
        b"<< /Type /Pages /Kids [3 0 R] /Count 1 >>",
        b"<< /Type /Page /Parent 2 0 R /MediaBox [0 0 595 842] /Contents 4 0 R"
        b" /Resources << /Font << /F1 5 0 R >> %s >> >>" % resources,
        stream(content),
        b"<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica >>",
        *others,
    )


def text_bomb(operators: int) -> bytes:
    """A small PDF whose page shows the same words so many times, one upon the other."""
    return one_page_pdf(b"BT /F1 1 Tf\n" + b"1 0 0 1 10 800 Tm (hola mundo) Tj\n" * operators + b"ET")


def nested_forms_bomb(levels: int, fan: int = 10) -> bytes:
    """A PDF of a few kilobytes that paints a form ``fan`` to the power of ``levels`` times."""
    forms = []
    for level in range(levels):
        last = level == levels - 1
        content = b"BT /F1 1 Tf (x) Tj ET" if last else b"/X Do\n" * fan
        inner = b"/Font << /F1 5 0 R >>" if last else b"/XObject << /X %d 0 R >>" % (7 + level)
        forms.append(stream(content, b"/Type /XObject /Subtype /Form /BBox [0 0 595 842] /Resources << %s >>" % inner))
    return one_page_pdf(b"/X Do\n" * fan, b"/XObject << /X 6 0 R >>", *forms)


def image_bomb(side: int) -> bytes:
    """A small PDF with a line of text and a square grey image of so many pixels a side."""
    # Every row packs to the same bytes, so one is packed: all of them would take seconds. An end and a checksum follow.
    compressor = zlib.compressobj(9, wbits=-15)
    row = compressor.compress(bytes(side)) + compressor.flush(zlib.Z_FULL_FLUSH)
    packed = b"\x78\xda" + row * side + b"\x03\x00" + struct.pack("!HH", side * side % 65_521, 1)
    image = (
        b"<< /Type /XObject /Subtype /Image /Width %d /Height %d /ColorSpace /DeviceGray /BitsPerComponent 8"
        b" /Filter /FlateDecode /Length %d >>\nstream\n%s\nendstream" % (side, side, len(packed), packed)
    )
    words = b"BT /F1 12 Tf 50 700 Td (El plano de toda la planta.) Tj ET\n"
    return one_page_pdf(words + b"q 500 0 0 500 40 100 cm /I Do Q", b"/XObject << /I 6 0 R >>", image)


def pages_bomb(pages: int) -> bytes:
    """A PDF of so many empty pages."""
    return raw_pdf(
        b"<< /Type /Catalog /Pages 2 0 R >>",
        b"<< /Type /Pages /Count %d /Kids [%s] >>" % (pages, b"".join(b"%d 0 R " % (3 + n) for n in range(pages))),
        *([b"<< /Type /Page /Parent 2 0 R /MediaBox [0 0 595 842] >>"] * pages),
    )


Block = str | Sequence[Sequence[str]] | bytes
"""A paragraph, the rows of a table, or an encoded image."""


def word(*blocks: Block, header: str = "", footer: str = "") -> bytes:
    """A DOCX file."""
    document = docx.Document()
    document.sections[0].header.paragraphs[0].text = header
    document.sections[0].footer.paragraphs[0].text = footer
    for block in blocks:
        if isinstance(block, str):
            document.add_paragraph(block)
        elif isinstance(block, bytes):
            document.add_picture(BytesIO(block))
        else:
            table = document.add_table(len(block), len(block[0]))
            for row, texts in zip(table.rows, block, strict=True):
                for cell, text in zip(row.cells, texts, strict=True):
                    cell.text = text
    return _saved(document)


def word_of(body: str, parts: Mapping[str, tuple[str, str | bytes]] | None = None) -> bytes:
    """A DOCX file with the XML of its body, and parts by name in its folder, each with what it is to the body."""
    parts = parts or {}
    related = "".join(
        f'<Relationship Id="{name}" Type="x/{kind}" Target="{name}"/>' for name, (kind, _) in parts.items()
    )
    spaces = " ".join(f'xmlns:{prefix}="{prefix}"' for prefix in ("w", "m", "mc", "v", "r"))
    return rezipped(
        word(),
        {
            "word/document.xml": f"<w:document {spaces}><w:body>{body}</w:body></w:document>",
            "word/_rels/document.xml.rels": f"<Relationships>{related}</Relationships>",
            **{f"word/{name}": content for name, (_, content) in parts.items()},
        },
    )


def powerpoint(*slides: tuple[str, Sequence[Block], str]) -> bytes:
    """A PPTX file of slides with a title, blocks and notes."""
    presentation = pptx.Presentation()
    for title, blocks, notes in slides:
        slide = presentation.slides.add_slide(presentation.slide_layouts[5])
        slide.shapes.title.text = title
        for n, block in enumerate(blocks):
            place = Inches(1), Inches(2 + n)
            if isinstance(block, str):
                slide.shapes.add_textbox(*place, Inches(6), Inches(1)).text_frame.text = block
            elif isinstance(block, bytes):
                slide.shapes.add_picture(BytesIO(block), *place)
            else:
                table = slide.shapes.add_table(len(block), len(block[0]), *place, Inches(6), Inches(1)).table
                for row, texts in enumerate(block):
                    for column, text in enumerate(texts):
                        table.cell(row, column).text = text
        if notes:
            slide.notes_slide.notes_text_frame.text = notes
    return _saved(presentation)


def excel(sheets: Mapping[str, Sequence[Sequence[object]]], formats: Mapping[str, str] | None = None) -> bytes:
    """An XLSX file of named sheets; ``formats`` are the number formats of cells of the first one."""
    book = openpyxl.Workbook()
    book.remove(book.active)
    for name, rows in sheets.items():
        sheet = book.create_sheet(name)
        for row in rows:
            sheet.append(row)
    for reference, number_format in (formats or {}).items():
        book.worksheets[0][reference].number_format = number_format
    return _saved(book)


def _saved(document: object) -> bytes:
    file = BytesIO()
    document.save(file)
    return file.getvalue()


def archive(members: Mapping[str, str | bytes]) -> bytes:
    """A ZIP archive."""
    file = BytesIO()
    with ZipFile(file, "w", ZIP_DEFLATED) as packed:
        for name, content in members.items():
            packed.writestr(name, content)
    return file.getvalue()


def rezipped(data: bytes, changes: Mapping[str, str | bytes]) -> bytes:
    """A ZIP archive with some of its members changed or added."""
    with ZipFile(BytesIO(data)) as packed:
        return archive({name: packed.read(name) for name in packed.namelist()} | dict(changes))


def open_document(body: str, styles: str = "", members: Mapping[str, bytes] | None = None) -> bytes:
    """An ODT file with the XML of its body and of its master pages."""
    names = {"office": "office", "text": "text", "table": "table", "style": "style", "draw": "drawing"}
    spaces = " ".join(
        f'xmlns:{short}="urn:oasis:names:tc:opendocument:xmlns:{name}:1.0"' for short, name in names.items()
    )
    spaces += ' xmlns:xlink="http://www.w3.org/1999/xlink"'
    content = f"<office:body><office:text>{body}</office:text></office:body>"
    master = f"<office:master-styles>{styles}</office:master-styles>"
    return archive(
        {
            "mimetype": "application/vnd.oasis.opendocument.text",
            "content.xml": f"<office:document-content {spaces}>{content}</office:document-content>",
            "styles.xml": f"<office:document-styles {spaces}>{master}</office:document-styles>",
            **(members or {}),
        }
    )


def book(*chapters: str, members: Mapping[str, bytes] | None = None) -> bytes:
    """An EPUB file with the HTML bodies of its chapters."""
    names = [f"text/chapter {n}.xhtml" for n in range(len(chapters))]
    items = "".join(f'<item id="c{n}" href="{name.replace(" ", "%20")}"/>' for n, name in enumerate(names))
    spine = "".join(f'<itemref idref="c{n}"/>' for n in range(len(names)))
    root = '<container><rootfiles><rootfile full-path="OEBPS/book.opf"/></rootfiles></container>'
    return archive(
        {
            "mimetype": "application/epub+zip",
            "META-INF/container.xml": root,
            "OEBPS/book.opf": f"<package><manifest>{items}</manifest><spine>{spine}</spine></package>",
            **{
                f"OEBPS/{name}": f"<html><body>{text}</body></html>" for name, text in zip(names, chapters, strict=True)
            },
            **(members or {}),
        }
    )


def mail(text: str, *, html: str = "", image: bytes = b"", attachment: tuple[str, bytes] | None = None) -> bytes:
    """A message as EML."""
    message = EmailMessage()
    message["Subject"] = "Revisión de la válvula"
    message["From"] = "ana@example.org"
    message["To"] = "luis@example.org"
    message["Message-ID"] = "<1@example.org>"
    message.set_content(text)
    if html:
        message.add_alternative(html, subtype="html")
    if image:
        message.add_attachment(image, maintype="image", subtype="png")
    if attachment:
        message.add_attachment(attachment[1], maintype="application", subtype="octet-stream", filename=attachment[0])
    return message.as_bytes()


def rtf(body: str) -> bytes:
    """An RTF file with the source of its body."""
    fonts = r"{\fonttbl{\f0\fcharset0 Arial;}{\f1\fcharset204 Arial;}}{\*\generator nobody;}"
    return rf"{{\rtf1\ansi\ansicpg1252\deff0{fonts}\f0 {body}}}".encode("latin-1")


def zip_bomb(mebibytes: int) -> bytes:
    """A small DOCX file whose text unpacks to so many mebibytes."""
    return rezipped(word("hola"), {"word/document.xml": b"<w>" + bytes(mebibytes * 1024**2) + b"</w>"})


def nested_xml(depth: int) -> bytes:
    """A DOCX file whose elements are within one another."""
    body = "<w:sdt>" * depth + "</w:sdt>" * depth
    return rezipped(
        word("hola"), {"word/document.xml": f'<w:document xmlns:w="w"><w:body>{body}</w:body></w:document>'}
    )


def entity_bomb() -> bytes:
    """A DOCX file with the billion laughs in it."""
    entities = "".join(f'<!ENTITY e{n} "{f"&e{n - 1};" * 10}">' for n in range(1, 10))
    return rezipped(word("hola"), {"word/document.xml": f'<!DOCTYPE w [<!ENTITY e0 "ja">{entities}]><w>&e9;</w>'})


def external_entity() -> bytes:
    """A DOCX file that asks for a file of the machine that reads it."""
    return rezipped(
        word("hola"), {"word/document.xml": '<!DOCTYPE w [<!ENTITY x SYSTEM "file:///etc/passwd">]><w>&x;</w>'}
    )
