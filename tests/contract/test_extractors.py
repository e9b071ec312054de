"""Every extractor keeps the same promises, and the registry knows a file by its content."""

import pkgutil
import struct
from base64 import b64encode
from datetime import date, datetime, time, timedelta
from email.mime.application import MIMEApplication
from email.mime.image import MIMEImage
from email.mime.multipart import MIMEMultipart
from email.mime.text import MIMEText
from importlib import import_module
from io import BytesIO

import pytest
from PIL import ExifTags, Image

from services.embeddings.adapters import extractors
from services.embeddings.adapters.extractors.editions import EDITIONS
from services.embeddings.adapters.extractors.limits import ExtractionLimits
from services.embeddings.adapters.extractors.pictures import MAX_SIDE
from services.embeddings.adapters.extractors.registry import (
    declared_formats,
    formats,
    read_document,
    render_page,
    supported_media_types,
)
from services.embeddings.domain.document import Page, PageFault
from services.embeddings.domain.errors import ExtractionError, ResourceLimitError
from tests.support import documents

LIMITS = ExtractionLimits()
PROSE = "La presión máxima del compresor IGE12-3 no debe pasar de diez bares; ¿cuándo se cambia el filtro?"


@pytest.fixture
def options() -> frozenset[str]:
    """What chooses the extractor under test, where it is not the usual one."""
    return frozenset()


@pytest.fixture
def read(tmp_path, options):
    """Reads bytes in this process. Returns the media type found and the pages."""

    def read(data: bytes, name: str = "file", media_type: str = "") -> tuple[str, list[Page]]:
        path = tmp_path / "content"
        path.write_bytes(data)
        found, pages = read_document(path, name=name, media_type=media_type, limits=LIMITS, options=options)
        return found, list(pages)

    return read


class TestFormats:
    def test_each_module_with_a_format_is_found(self):
        names = [module.name for module in pkgutil.iter_modules(extractors.__path__)]
        declared = [name for name in names if hasattr(import_module(f"{extractors.__name__}.{name}"), "FORMAT")]
        assert len(declared_formats()) == len(declared)

    def test_no_media_type_and_no_suffix_belongs_to_two_formats(self):
        suffixes = [suffix for found in formats() for some in found.media_types.values() for suffix in some]
        assert len(suffixes) == len(set(suffixes))
        assert len(supported_media_types()) == len(set(supported_media_types()))

    def test_each_media_type_has_an_edition_of_its_rules(self):
        assert sorted(EDITIONS) == supported_media_types()

    @pytest.mark.parametrize(
        ("data", "name", "declared", "found"),
        [
            (documents.text_pdf("hola"), "a.txt", "text/plain", "application/pdf"),
            (b"junk before\n" + documents.text_pdf("hola"), "a", "", "application/pdf"),
            (b"hola", "a.pdf", "application/pdf", "text/plain"),
            (b"hola", "a", "application/octet-stream", "text/plain"),
            ("<html><p>hola".encode("utf-16"), "a.txt", "", "text/html"),
            (b"\xef\xbb\xbf <!-- x --> <!DOCTYPE html><p>hola", "a", "", "text/html"),
            (b"# hola", "a.MD", "text/plain", "text/markdown"),
            (b"# hola", "a", "text/markdown; charset=utf-8", "text/markdown"),
            (documents.picture(), "a.pdf", "application/pdf", "image/png"),
            (documents.picture(kind="JPEG"), "a.png", "image/png", "image/jpeg"),
            (documents.picture(kind="WEBP"), "a", "", "image/webp"),
            (documents.tiff(["a"]), "a", "", "image/tiff"),
            (documents.picture(kind="GIF"), "a", "", "image/gif"),
            (documents.picture(kind="BMP"), "a", "", "image/bmp"),
            (b"BMW fabrica motores en Baviera desde 1916.", "a", "", "text/plain"),
        ],
    )
    def test_content_says_what_a_file_is_and_the_name_only_what_content_cannot(self, read, data, name, declared, found):
        assert read(data, name, declared)[0] == found

    @pytest.mark.parametrize(
        ("data", "what"),
        [
            (b"\x7fELF" + bytes(600), "a program"),
            (b"\xd7\xcd\xc6\x9a" + bytes(600), "a WMF image"),
            (bytes(range(256)) * 4, "no known type"),
        ],
    )
    def test_what_cannot_be_read_is_named_with_what_can(self, read, data, what):
        with pytest.raises(ExtractionError) as caught:
            read(data, "a.txt", "text/plain")
        assert caught.value.code == "UNSUPPORTED_MEDIA_TYPE"
        assert what in caught.value.message
        assert "text/plain" in caught.value.message
        assert "application/pdf" in str(caught.value.remedy)

    @pytest.mark.parametrize("declared", ["application/pdf", "text/plain", ""])
    def test_an_empty_file_is_an_empty_document(self, read, declared):
        assert read(b"", "a.pdf", declared) == (declared, [])

    def test_a_file_that_is_only_called_a_pdf_is_corrupt(self, read):
        with pytest.raises(ExtractionError, match="CORRUPT"):
            read(bytes(range(256)) * 4, "a.pdf")

    def test_an_error_is_never_content(self, read):
        broken = documents.text_pdf("uno", "dos").replace(b"/Contents", b"/Kontents")
        assert [page.text for page in read(broken)[1]] == ["", ""]

    def test_a_page_that_cannot_be_read_says_so_and_leaves_the_others(self, read):
        one_is_lost = documents.text_pdf("uno", "dos").replace(b"/Count 2/Kids[", b"/Count 3/Kids[99 0 R ")
        assert read(one_is_lost)[1] == [Page(1, "", fault=PageFault.UNREADABLE), Page(2, "uno"), Page(3, "dos")]

    @pytest.mark.parametrize("count", [-1, 0, 1, 2, 4, 100_000])
    def test_a_pdf_has_the_pages_that_it_has_and_not_as_many_as_it_says(self, read, count):
        says_otherwise = documents.text_pdf("uno", "dos", "tres").replace(b"/Count 3", b"/Count %d" % count)
        assert [page.text for page in read(says_otherwise)[1]] == ["uno", "dos", "tres"]


class TestText:
    @pytest.mark.parametrize(
        "encoding", ["utf-8", "utf-8-sig", "utf-16", "utf-16-le", "utf-16-be", "utf-32", "cp1252", "latin-1"]
    )
    def test_western_text_is_read_in_any_common_encoding(self, read, encoding):
        assert read(PROSE.encode(encoding), "a.txt")[1] == [Page(None, PROSE)]

    @pytest.mark.parametrize(
        ("text", "encoding"),
        [
            ("Давление в баке не должно превышать десяти бар. Фильтр меняют раз в год.", "cp1251"),
            ("Η πίεση στη δεξαμενή δεν πρέπει να υπερβαίνει τα δέκα μπαρ.", "cp1253"),
            ("Давление в баке не должно превышать десяти бар. Фильтр меняют раз в год.", "koi8-r"),
            ("Замена фильтра", "koi8-r"),
            ("Фильтр", "iso-8859-5"),
            ("Давление в баке не должно превышать десяти бар.", "utf-16-le"),
            ("ДАВЛЕНИЕ В БАКЕ", "utf-16-be"),
            ("圧力", "utf-32-le"),
            ("Příliš žluťoučký kůň úpěl ďábelské ódy. Tlak v nádrži nesmí překročit deset barů.", "cp1250"),
            ("Ciśnienie w zbiorniku nie może przekraczać dziesięciu barów.", "iso-8859-2"),
            ("Filtar se mijenja svake godine prema uputama proizvođača.", "iso-8859-2"),
            ("Zařízení", "iso-8859-2"),
            ("Întreţinerea instalaţiei se face numai de către personal calificat, în fiecare an.", "cp1250"),
            ("Tankın basıncı on barı geçmemelidir, aksi hâlde arıza olur.", "cp1254"),
            ("La pression maximale du réservoir est de dix bars à l’arrêt.", "mac_roman"),
            ("La presión máxima del compresor es de 10 bar.", "mac_roman"),
            ("La presión máxima del compresor; según el manual, 10 bar.", "cp850"),
            ("הלחץ במיכל אינו יכול לעלות על עשרה בר.", "cp1255"),
            ("タンクの圧力は十バールを超えてはなりません。フィルターは年に一度交換してください。", "shift_jis"),
            ("储罐压力不得超过十巴。过滤器每年应更换一次,根据制造商的说明。", "gb18030"),
            ("탱크 압력은 10바를 초과해서는 안 됩니다. 필터는 일년에 한 번 교체하십시오.", "euc_kr"),
        ],
    )
    def test_other_scripts_are_told_by_their_statistics(self, read, text, encoding):
        assert read(text.encode(encoding), "a.txt")[1] == [Page(None, text)]

    @pytest.mark.parametrize(
        ("text", "encoding", "declared"),
        [
            ("Čakovec", "iso-8859-2", "iso-8859-2"),
            ("Čakovec", "cp1250", '"Windows-1250"'),
            ("Año – 5 €", "cp1252", "iso-8859-1"),
            ("Año", "utf-8", "iso-8859-1"),
            ("Año", "cp1252", "us-ascii"),
            ("Año", "cp1252", "no-such"),
        ],
    )
    def test_the_declared_encoding_counts_where_the_bytes_do_not_contradict_it(self, read, text, encoding, declared):
        for name, media_type in (("a.txt", "text/plain"), ("a.csv", "text/csv"), ("a.html", "text/html")):
            assert read(text.encode(encoding), name, f"{media_type}; charset={declared}")[1][0].text == text

    @pytest.mark.parametrize("text", ["Año", "presión", "caña de azúcar", "válvula, señal, caña, ángulo, óptimo, útil"])
    def test_a_few_spanish_words_are_not_taken_for_another_script(self, read, text):
        assert read(text.encode("cp1252"), "a.txt")[1] == [Page(None, text)]

    @pytest.mark.parametrize(
        ("text", "shown"),
        [
            ("el com-\npresor", "el compresor"),
            ("el com-\r\n   presor", "el compresor"),
            ("estado-de-\nla-cuestión", "estado-de-\nla-cuestión"),
            ("- uno\n- dos", "- uno\n- dos"),
            ("IGE-\nDos, a-\nb", "IGE-\nDos, a-\nb"),
            ("pre\u00adsión má\u00ad\nxima", "presión máxima"),
        ],
    )
    def test_words_parted_at_the_end_of_a_line_or_by_invisible_hyphens_are_whole(self, read, text, shown):
        assert read(text.encode(), "a.txt")[1][0].text == shown

    @pytest.mark.parametrize("form", ["![Plano](<{}> 'x')", "![Plano]({})", "Plano\n\n[image1]: <{}>", "Plano {}"])
    def test_an_image_written_out_in_text_is_an_image(self, read, form):
        address = f"data:image/png;base64,{b64encode(documents.picture()).decode()}"
        first, second = read(f"Antes.\n\n{form.format(address)}\n\nDespués (fin).".encode(), "a.md")[1]
        assert (first.text, len(first.images), second.text) == ("Antes.\n\nPlano", 1, "Después (fin).")

    def test_page_breaks_and_vertical_tabs_end_lines(self, read):
        assert read(b"uno\fdos\vtres", "a.txt")[1] == [Page(None, "uno\ndos\ntres")]

    def test_what_no_database_stores_is_left_out(self, read):
        assert read(b"ho\x00la\x07\r\nmundo", "a.txt")[1] == [Page(None, "hola\nmundo")]


class TestImages:
    @pytest.mark.parametrize("kind", ["PNG", "JPEG", "WEBP", "TIFF", "GIF", "BMP"])
    def test_an_image_is_a_page_whose_image_is_to_be_described(self, read, kind):
        _, (page,) = read(documents.picture(kind=kind))
        (image,) = page.images
        assert (page.number, page.text, image.width, image.height) == (1, "", 320, 200)
        assert image.media_type in ("image/png", "image/jpeg")

    def test_each_frame_of_a_tiff_is_a_page(self, read):
        _, pages = read(documents.tiff(["uno"], ["dos"], ["tres"]))
        assert [page.number for page in pages] == [1, 2, 3]
        assert len({page.images[0].digest for page in pages}) == 3

    def test_a_frame_that_cannot_be_decoded_leaves_the_others(self, read):
        data = documents.tiff(["uno"], ["dos"], ["tres"])
        compression = struct.pack("<HHIHH", 259, 3, 1, 1, 0)
        parts = data.split(compression)
        assert len(parts) == 4
        unknown = struct.pack("<HHIHH", 259, 3, 1, 999, 0)
        _, pages = read(compression.join(parts[:2]) + unknown + compression.join(parts[2:]))
        assert [(page.number, page.fault, len(page.images)) for page in pages] == [
            (1, None, 1),
            (2, PageFault.UNREADABLE, 0),
            (3, None, 1),
        ]
        with pytest.raises(ExtractionError, match="CORRUPT"):
            read(unknown.join(parts))

    @pytest.mark.parametrize("kind", ["JPEG", "PNG", "TIFF"])
    def test_an_image_that_is_stored_on_its_side_stands_upright(self, read, kind):
        file, turned = BytesIO(), Image.Exif()
        turned[ExifTags.Base.Orientation] = 6
        documents.drawn(["uno"], (320, 200)).save(file, kind, exif=turned)
        _, (page,) = read(file.getvalue())
        assert page.layout is not None
        assert (page.images[0].width, page.images[0].height) == (200, 320)
        assert (page.layout.width, page.layout.height) == (2000, 3200)

    def test_a_large_image_is_made_smaller(self, read):
        _, (page,) = read(documents.picture(size=(4000, 1000)))
        assert (page.images[0].width, page.images[0].height) == (MAX_SIDE, MAX_SIDE // 4)

    @pytest.mark.parametrize("size", [(31, 200), (3000, 140)])
    def test_a_small_or_thin_image_is_decoration(self, read, size):
        assert read(documents.picture(size=size))[1] == [Page(1, "")]

    def test_an_image_of_one_colour_is_decoration(self, read):
        assert read(documents.picture([]))[1] == [Page(1, "")]

    @pytest.mark.parametrize("mode", ["1", "L", "LA", "P", "RGBA", "CMYK", "I;16", "F"])
    def test_every_kind_of_pixel_is_shown(self, read, mode):
        _, (page,) = read(documents.picture(mode=mode, kind="TIFF"))
        assert (page.images[0].width, page.images[0].height) == (320, 200)


class TestPdf:
    @pytest.fixture(params=["pymupdf", "pdfium"])
    def options(self, request) -> frozenset[str]:
        return frozenset([request.param])

    def test_the_pages_have_their_text(self, read):
        found, pages = read(documents.text_pdf(PROSE, "", "fin"))
        assert found == "application/pdf"
        assert [page.number for page in pages] == [1, 2, 3]
        assert [" ".join(page.text.split()) for page in pages] == [PROSE, "", "fin"]

    @pytest.mark.parametrize("rotation", [0, 90, 180, 270])
    def test_a_scanned_page_is_its_image_upright(self, read, rotation):
        _, pages = read(documents.scanned_pdf(["INFORME"], ["ANEXO"], rotation=rotation))
        sizes = [(image.width, image.height) for page in pages for image in page.images]
        assert [page.text for page in pages] == ["", ""]
        assert sizes == [(1414, 2000)] * 2 if rotation in (0, 180) else [(2000, 1414)] * 2

    def test_a_scanned_page_with_a_text_layer_is_its_text(self, read):
        _, (page,) = read(documents.scanned_pdf(["INFORME"], layer=PROSE))
        assert " ".join(page.text.split()) == PROSE
        assert page.images == ()

    def test_a_page_with_only_a_drawing_is_its_image(self, read):
        _, (page,) = read(documents.drawn_pdf())
        assert (page.text, len(page.images)) == ("", 1)

    def test_text_whose_characters_are_unknown_is_its_image(self, read):
        _, (page,) = read(documents.garbled_pdf("La presión máxima del compresor"))
        assert (page.text.split(), len(page.images), page.fault) == ([], 1, PageFault.GARBLED)

    def test_text_of_a_font_that_does_not_say_what_its_glyphs_are_is_garbled(self, read):
        _, (page,) = read(documents.nameless_glyphs_pdf("La presión máxima del compresor"))
        assert (page.text.split(), page.fault) == ([], PageFault.GARBLED)

    @pytest.mark.parametrize(("unknown", "fault"), [("\ufffd", PageFault.GARBLED), ("", None)])
    def test_one_unknown_character_in_eight_is_too_much(self, read, unknown, fault):
        text = " ".join(f"presi{unknown}n maxima" for _ in range(20))
        _, (page,) = read(documents.unicode_pdf(text))
        assert page.fault is fault
        assert page.text.split() == (["maxima"] * 20 if unknown else ["presin", "maxima"] * 20)

    def test_unknown_signs_before_the_items_of_a_list_garble_nothing(self, read):
        _, (page,) = read(documents.unicode_pdf(" ".join("\uf0b7 valvula" for _ in range(20))))
        assert (page.text.count("valvula"), page.fault) == (20, None)

    def test_what_is_filled_into_a_form_or_written_on_the_page_is_read(self, read):
        _, (page,) = read(documents.filled_form_pdf("Nombre:", field="Ana Pérez", note="Urgente, por favor."))
        assert sorted(page.text.split()) == sorted(["Nombre:", "Ana", "Pérez", "Urgente,", "por", "favor."])

    def test_text_in_a_layer_that_is_not_shown_is_left_out(self, read):
        _, (page,) = read(documents.layered_pdf("Valvula V-101 abierta", "Borrador"))
        assert page.text == "Valvula V-101 abierta\n\nValvula V-101 abierta"

    def test_text_outside_of_what_is_shown_of_the_page_is_left_out(self, read):
        lines = [documents.Line(50, 60, "cortado"), documents.Line(50, 400, "La válvula V-101 abre a 12 bar.")]
        _, (page,) = read(documents.cropped_pdf(lines, (40, 300, 500, 500)))
        assert page.text == "La válvula V-101 abre a 12 bar."
        assert page.layout is not None
        (span,) = page.layout.spans
        assert (page.layout.width, page.layout.height) == (4600, 2000)
        assert 90 <= span.rect.x0 <= 110
        assert 850 <= span.rect.y0 < span.rect.y1 <= 1050

    def test_text_stands_where_it_is_shown_on_a_page_whose_size_is_said_for_all(self, read):
        box = b" /MediaBox [0 0 300 400]"
        one = documents.one_page_pdf(b"BT /F1 12 Tf 50 350 Td (hola) Tj ET").replace(b" /MediaBox [0 0 595 842]", b"")
        _, (page,) = read(one.replace(b"/Count 1 ", b"/Count 1" + box))
        assert page.layout is not None
        (span,) = page.layout.spans
        assert (page.text, page.layout.width, page.layout.height) == ("hola", 3000, 4000)
        assert 350 <= span.rect.y0 < 500 <= span.rect.y1 <= 550

    @pytest.mark.parametrize("rotation", [0, 90, 180, 270])
    @pytest.mark.parametrize("unit", [1, 2])
    def test_text_and_images_stand_where_they_are_shown_on_a_page_of_another_unit(self, read, rotation, unit):
        image = documents.stream(
            bytes(range(256)) * 16,
            b"/Type /XObject /Subtype /Image /Width 64 /Height 64 /ColorSpace /DeviceGray /BitsPerComponent 8",
        )
        content = b"BT /F1 12 Tf 59.5 700 Td (La figura muestra las presiones) Tj ET q 119 0 0 84.2 357 84.2 cm /I Do Q"
        one = documents.one_page_pdf(content, b"/XObject << /I 6 0 R >>", image)
        _, (page,) = read(one.replace(b" /MediaBox", b" /UserUnit %d /Rotate %d /MediaBox" % (unit, rotation)))
        assert page.layout is not None
        (text,), (shown,) = page.layout.spans, page.layout.images
        x, y, x0, y0, x1, y1 = {
            0: (0.1, 0.165, 0.6, 0.8, 0.8, 0.9),
            90: (0.835, 0.1, 0.1, 0.6, 0.2, 0.8),
            180: (0.9, 0.835, 0.2, 0.1, 0.4, 0.2),
            270: (0.165, 0.9, 0.8, 0.2, 0.9, 0.4),
        }[rotation]
        width, height = page.layout.width, page.layout.height
        corners = shown.x0 / width, shown.y0 / height, shown.x1 / width, shown.y1 / height
        assert corners == pytest.approx((x0, y0, x1, y1), abs=0.01)
        assert text.rect.x0 - 0.01 * width <= x * width <= text.rect.x1 + 0.01 * width
        assert text.rect.y0 - 0.01 * height <= y * height <= text.rect.y1 + 0.01 * height

    @pytest.mark.parametrize("turned", [b"", b" /Rotate 90"])
    def test_a_box_ends_at_the_border_of_the_page(self, read, turned):
        words = b"570 700 Td (Filtros) Tj -600 -100 Td (Bombas) Tj 130 240 Td (Arriba) Tj 0 -842 Td (Abajo) Tj"
        beyond = documents.one_page_pdf(b"BT /F1 12 Tf " + words + b" 800 0 Td (fuera) Tj ET")
        _, (page,) = read(beyond.replace(b" /MediaBox", turned + b" /MediaBox"))
        assert page.layout is not None
        assert sorted(page.text.split()) == ["Abajo", "Arriba", "Filtro", "bas"]
        assert len(page.layout.spans) == 4
        for _, _, (x0, y0, x1, y1) in page.layout.spans:
            assert 0 <= x0 < x1 <= page.layout.width
            assert 0 <= y0 < y1 <= page.layout.height

    @pytest.mark.parametrize("offsets", [[0, 0], [0, 0.3], [0, 0.3, 0.6]])
    def test_text_drawn_again_to_look_bold_is_read_once(self, read, offsets):
        def drawn(x: float, y: float, text: str) -> bytes:
            return b"".join(b"1 0 0 1 %.2f %d Tm (%s) Tj\n" % (x + by, y, text.encode()) for by in offsets)

        by_line = drawn(50, 700, "Ahorro de agua") + drawn(50, 686, "y de energia")
        by_word = drawn(50, 600, "Ahorro") + drawn(92, 600, "de") + drawn(109, 600, "agua")
        once = drawn(50, 500, "illusion 1111")
        _, (page,) = read(documents.one_page_pdf(b"BT /F1 12 Tf\n" + by_line + by_word + once + b"ET"))
        assert page.text == "Ahorro de agua\ny de energia\n\nAhorro de agua\n\nillusion 1111"
        assert page.layout is not None
        assert len(page.layout.spans) == 4

    def test_a_page_of_any_shape_can_be_shown(self, tmp_path, options):
        path = tmp_path / "strip.pdf"
        path.write_bytes(documents.one_page_pdf(b"").replace(b"[0 0 595 842]", b"[0 0 90000 1]"))
        _, page = render_page(path, name="", media_type="", limits=LIMITS, options=options, number=1, size=400)
        (image,) = page.images
        assert (image.width, image.height) == (400, 1)

    def test_images_come_in_the_order_of_the_page_and_each_once(self, read):
        one, two = documents.picture(["uno"]), documents.picture(["dos"], size=(400, 200))
        upper, middle, lower = (50, 100, 210, 200), (50, 300, 250, 400), (50, 500, 210, 600)
        _, (page,) = read(documents.pdf_with_images([(one, upper), (two, middle), (one, lower)], text=PROSE))
        assert [round(image.width / image.height, 1) for image in page.images] == [1.6, 2.0]

    def test_an_image_on_every_page_is_furniture_after_the_third(self, read):
        logo = [(documents.picture(["ACME"]), (50, 700, 130, 750))]
        _, pages = read(documents.pdf_with_images(*[logo] * 5, text=PROSE))
        assert [len(page.images) for page in pages] == [1, 1, 1, 0, 0]

    @pytest.mark.parametrize("heading", ["Factura 2024{:03}", "Lección {}", "Informe anual de la planta: {}001"])
    def test_a_number_that_is_not_the_pages_stays(self, read, heading):
        texts = [heading.format(number) for number in range(1, 9)]
        _, pages = read(
            documents.text_pdf(*(f"{text}\n\nCuerpo {'abc'[n % 3]}{n * 7}." for n, text in enumerate(texts)))
        )
        assert all(text in page.text for text, page in zip(texts, pages, strict=True))

    def test_headers_and_footers_are_left_out_after_the_third_page(self, read):
        bodies = [f"{name} se revisa cada año." for name in ("Uno", "Dos", "Tres", "Cuatro", "Cinco")]
        shown = documents.pdf(
            [
                [
                    documents.Line(50, 40, "Manual IGE12"),
                    documents.Line(50, 300, body),
                    documents.Line(50, 800, f"Página {n} de 5"),
                ]
                for n, body in enumerate(bodies, start=1)
            ]
        )
        texts = [page.text.split("\n\n") for page in read(shown)[1]]
        assert texts[:3] == [["Manual IGE12", body, f"Página {n} de 5"] for n, body in enumerate(bodies[:3], start=1)]
        assert texts[3:] == [[body] for body in bodies[3:]]

    def test_pages_that_are_all_the_same_are_content(self, read):
        assert [page.text for page in read(documents.text_pdf(*["Página en blanco a propósito."] * 5))[1]] == [
            "Página en blanco a propósito."
        ] * 5

    def test_headings_that_begin_pages_are_content(self, read):
        shown = documents.text_pdf(*(f"Artículo {n}. Se revisa cada año." for n in (1, 5, 6, 9, 30)))
        assert [page.text for page in read(shown)[1]] == [
            f"Artículo {n}. Se revisa cada año." for n in (1, 5, 6, 9, 30)
        ]

    def test_an_image_smaller_than_seven_millimetres_is_decoration(self, read):
        icon = [(documents.picture(), (50, 700, 69, 719))]
        _, (page,) = read(documents.pdf_with_images(icon, text=PROSE))
        assert page.images == ()

    def test_an_image_in_strips_is_one_image(self, read):
        strips = documents.strips(documents.picture(["P1: 12 bar", "P2: 8 bar"]), 10)
        _, (page,) = read(
            documents.pdf_with_images(
                [(strip, (50, 300 + 20 * n, 370, 320 + 20 * n)) for n, strip in enumerate(strips)], text=PROSE
            )
        )
        (image,) = page.images
        assert image.width / image.height == pytest.approx(320 / 200, rel=0.02)

    @pytest.mark.parametrize(
        "image",
        [documents.picture(mode="CMYK", kind="JPEG"), documents.picture(mode="RGBA"), documents.picture(mode="1")],
    )
    def test_images_of_every_kind_are_shown(self, read, image):
        _, (page,) = read(documents.pdf_with_images([(image, (50, 300, 370, 500))], text=PROSE))
        (shown,) = page.images
        assert shown.width / shown.height == pytest.approx(320 / 200, rel=0.02)

    def test_an_inline_image_is_shown(self, read):
        _, (page,) = read(documents.inline_image_pdf())
        assert len(page.images) == 1

    def test_an_image_that_cannot_be_decoded_leaves_the_page_its_text(self, read):
        text = "El esquema muestra la bomba."
        _, (page,) = read(documents.broken_image_pdf(text))
        assert (page.number, page.text, [image.fault for image in page.images]) == (
            1,
            text,
            ["IMAGE_UNREADABLE: it cannot be decoded"],
        )

    def test_an_owner_s_password_does_not_keep_from_reading(self, read):
        assert read(documents.encrypted_pdf("hola", user_password=""))[1] == [Page(1, "hola")]

    def test_a_password_to_read_is_asked_for(self, read):
        with pytest.raises(ExtractionError, match="ENCRYPTED"):
            read(documents.encrypted_pdf("hola", user_password="clave"))

    def test_a_truncated_file_keeps_what_can_be_read(self, read):
        whole = documents.text_pdf(PROSE, PROSE)
        _, pages = read(whole[: whole.index(b"startxref")])
        assert [" ".join(page.text.split()) for page in pages] == [PROSE, PROSE]

    @pytest.mark.parametrize("size", [20, 200, 400])
    def test_a_file_of_which_nothing_can_be_read_is_corrupt(self, read, size):
        with pytest.raises(ExtractionError, match="CORRUPT"):
            read(documents.text_pdf(PROSE)[:size])

    def test_a_damaged_file_whose_pages_have_no_contents_is_blank(self, read):
        blank = documents.raw_pdf(
            b"<< /Type /Catalog /Pages 2 0 R >>",
            b"<< /Type /Pages /Kids [3 0 R] /Count 1 >>",
            b"<< /Type /Page /Parent 2 0 R /MediaBox [0 0 595 842] >>",
        )
        assert read(blank[: blank.index(b"xref")] + b"trailer\n<< /Root 1 0 R >>\n%%EOF")[1] == [Page(1, "")]

    def test_what_one_library_cannot_open_another_may(self, read):
        """MuPDF refuses a page tree that names a page twice, and PDFium does not."""
        page = (
            b"<< /Type /Page /Parent 2 0 R /MediaBox [0 0 595 842] /Contents 4 0 R"
            b" /Resources << /Font << /F1 5 0 R >> >> >>"
        )
        twice = documents.raw_pdf(
            b"<< /Type /Catalog /Pages 2 0 R >>",
            b"<< /Type /Pages /Kids [3 0 R 3 0 R] /Count 2 >>",
            page,
            documents.stream(b"BT /F1 12 Tf 50 700 Td (hola) Tj ET"),
            b"<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica >>",
        )
        assert [page.text for page in read(twice)[1]] == ["hola", "hola"]

    def test_characters_that_no_database_stores_are_left_out(self, read):
        _, (page,) = read(documents.one_page_pdf(b"BT /F1 12 Tf 50 700 Td (hola\\000 mundo) Tj ET"))
        assert page.text.replace("\ufffd", "") == "hola mundo"


TABLE = [["Válvula", "Presión"], ["V-101", "12 bar"], ["V-102", "8 bar"]]
TABLE_LINES = "Válvula | Presión\nV-101 | 12 bar\nV-102 | 8 bar"
COLUMNS = ("Región", "Teléfono", "Correo")
LONG_TABLE = [["Válvula", "Presión"], *([f"V-{n}", f"{n} bar"] for n in range(100))]


def text_of(pages: list[Page]) -> str:
    return "\n\n".join(page.text for page in pages)


class TestFlows:
    """Formats without pages: the text in order, tables as rows, and images where they stand."""

    @pytest.mark.parametrize(
        "data",
        [
            documents.word("Primero.", TABLE, "Después.", header="Manual", footer="Confidencial"),
            documents.open_document(
                "<text:h>Primero.</text:h><table:table><table:table-row>"
                + "</table:table-row><table:table-row>".join(
                    "".join(f"<table:table-cell><text:p>{cell}</text:p></table:table-cell>" for cell in row)
                    for row in TABLE
                )
                + "</table:table-row></table:table><text:p>Después.</text:p>",
                "<style:header><text:p>Manual</text:p></style:header><style:footer><text:p>Confidencial</text:p></style:footer>",
            ),
            b"<!doctype html><title>Manual</title><script>no()</script><h1>Primero.</h1><table>"
            + "".join("<tr>" + "".join(f"<td>{cell}</td>" for cell in row) for row in TABLE).encode()
            + "</table><p>Después.<!-- no --></p><footer>Confidencial</footer>".encode(),
            documents.rtf(
                r"Manual\par Primero.\par "
                + "".join(r"\trowd\intbl " + "".join(rf"{cell}\cell " for cell in row) + r"\row " for row in TABLE)
                + r"\pard Despu\'e9s.\par Confidencial"
            ),
        ],
        ids=["docx", "odt", "html", "rtf"],
    )
    def test_paragraphs_and_tables_come_in_order(self, read, data):
        found, pages = read(data)
        assert found != "text/plain"
        assert [page.number for page in pages] == [None]
        pieces = text_of(pages).split("\n\n")
        assert sorted(pieces) == sorted(["Manual", "Primero.", TABLE_LINES, "Después.", "Confidencial"])
        assert pieces.index("Primero.") < pieces.index(TABLE_LINES) < pieces.index("Después.")

    @pytest.mark.parametrize(
        "data",
        [
            documents.word("Antes.", documents.picture(), "Después."),
            documents.open_document(
                '<text:p>Antes.<draw:frame><draw:image xlink:href="Pictures/1.png"/></draw:frame></text:p>'
                "<text:p>Después.</text:p>",
                members={"Pictures/1.png": documents.picture()},
            ),
            documents.rtf(r"Antes.\par {\*\shppict{\pict\pngblip " + documents.picture().hex() + r"}}Despu\'e9s."),
        ],
        ids=["docx", "odt", "rtf"],
    )
    def test_an_image_ends_the_text_before_it(self, read, data):
        _, pages = read(data)
        assert [(page.text, len(page.images)) for page in pages] == [("Antes.", 1), ("Después.", 0)]
        assert pages[0].images == read(documents.picture())[1][0].images

    @pytest.mark.parametrize("kind", ["GIF", "BMP"])
    def test_an_image_of_an_older_format_is_read(self, read, kind):
        assert [len(page.images) for page in read(documents.word("Antes.", documents.picture(kind=kind)))[1]] == [1]

    @pytest.mark.parametrize(
        ("data", "why"),
        [
            (documents.picture()[:300], "cannot be decoded"),
            (documents.picture(kind="JPEG")[:700], "cannot be decoded"),
            (documents.enhanced_metafile(size=(300, 200)), "cannot be decoded"),
            (b"nada", "no format that can be read"),
        ],
        ids=["png", "jpeg", "emf", "unknown"],
    )
    def test_an_image_that_cannot_be_decoded_is_there_and_says_so(self, read, data, why):
        word = documents.rezipped(documents.word("Antes.", documents.picture()), {"word/media/image1.png": data})
        _, (page,) = read(word)
        (image,) = page.images
        assert (page.text, image.data) == ("Antes.", b"")
        assert str(image.fault).startswith("IMAGE_UNREADABLE: ")
        assert why in str(image.fault)

    def test_an_icon_is_decoration_whether_it_can_be_decoded_or_not(self, read):
        icon = documents.enhanced_metafile(size=(16, 16))
        word = documents.rezipped(documents.word("Antes.", documents.picture()), {"word/media/image1.png": icon})
        assert read(word)[1] == [Page(None, "Antes.")]

    def test_each_row_of_a_long_table_says_the_names_of_its_columns(self, read):
        rows = read(documents.word(LONG_TABLE))[1][0].text.split("\n")
        assert (rows[0], rows[100]) == ("Válvula | Presión", "Válvula: V-99 | Presión: 99 bar")

    @pytest.mark.parametrize(
        "data",
        [
            documents.rezipped(
                documents.word(),
                {
                    "word/document.xml": '<w:document xmlns:w="w"><w:body><w:tbl>'
                    + "".join(
                        f"<w:tr>{row}</w:tr>"
                        for row in [
                            "".join(f"<w:tc><w:p><w:r><w:t>{one}</w:t></w:r></w:p></w:tc>" for one in COLUMNS),
                            *(
                                '<w:tc><w:tcPr><w:gridSpan w:val="2"/></w:tcPr><w:p><w:r><w:t>Sin región'
                                f"</w:t></w:r></w:p></w:tc><w:tc><w:p><w:r><w:t>a{n}@b.es</w:t></w:r></w:p></w:tc>"
                                for n in range(100)
                            ),
                        ]
                    )
                    + "</w:tbl></w:body></w:document>"
                },
            ),
            documents.open_document(
                "<table:table>"
                + "".join(
                    f"<table:table-row>{row}</table:table-row>"
                    for row in [
                        "".join(f"<table:table-cell><text:p>{one}</text:p></table:table-cell>" for one in COLUMNS),
                        *(
                            '<table:table-cell table:number-columns-spanned="2"><text:p>Sin región</text:p>'
                            "</table:table-cell><table:covered-table-cell/>"
                            f"<table:table-cell><text:p>a{n}@b.es</text:p></table:table-cell>"
                            for n in range(100)
                        ),
                    ]
                )
                + "</table:table>"
            ),
            "<!doctype html><table><tr><th>Región<th>Teléfono<th>Correo".encode()
            + "".join(f"<tr><td colspan=2>Sin región</td><td>a{n}@b.es</td>" for n in range(100)).encode()
            + b"</table>",
        ],
        ids=["docx", "odt", "html"],
    )
    def test_a_cell_over_two_columns_moves_no_other_under_a_wrong_name(self, read, data):
        rows = read(data)[1][0].text.split("\n")
        assert (rows[0], rows[100]) == (" | ".join(COLUMNS), "Región: Sin región | Correo: a99@b.es")

    @pytest.mark.parametrize(
        "head",
        [
            [["Producto", "2023", "2024"]],
            [["Producto", "01/2024", "2024-02-28"]],
            [["Producto", "Ventas", "Ventas"]],
            [["Informe de ventas 2024", "", ""], ["Región Norte", "", ""], ["Producto", "Uno", "Dos"]],
        ],
    )
    def test_years_equal_names_and_titles_do_not_keep_a_row_from_being_the_header(self, read, head):
        rows = read(documents.word([*head, *([f"P-{n}", f"{n}", f"{n},5"] for n in range(100))]))[1][0].text.split("\n")
        names = head[-1]
        assert rows[len(head) - 1 :][:2] == [" | ".join(names), f"Producto: P-0 | {names[1]}: 0 | {names[2]}: 0,5"]

    @pytest.mark.parametrize("row", [["Ana", "1987"], ["Ana", "12,5"], ["Ana", "Ana"]])
    def test_a_row_like_the_others_is_no_header(self, read, row):
        rows = read(documents.word([row, *([f"Persona {n}", "1990"] for n in range(100))]))[1][0].text.split("\n")
        assert rows[:2] == [" | ".join(row), "Persona 0 | 1990"]

    @pytest.mark.parametrize(
        "data",
        [
            documents.rezipped(
                documents.word(),
                {
                    "word/document.xml": '<w:document xmlns:w="w"><w:body><w:tbl>'
                    + "".join(
                        f"<w:tr><w:tc><w:tcPr><w:vMerge{merge}/></w:tcPr><w:p><w:r><w:t>{text}</w:t></w:r></w:p></w:tc>"
                        f"<w:tc><w:p><w:r><w:t>{other}</w:t></w:r></w:p></w:tc></w:tr>"
                        for merge, text, other in [(' w:val="restart"', "Norte", "Ana"), ("", "", "Luis")]
                    )
                    + "</w:tbl></w:body></w:document>"
                },
            ),
            documents.rezipped(
                documents.powerpoint(("", [], "")),
                {
                    "ppt/slides/slide1.xml": "<sld><tbl>"
                    + "".join(
                        f"<tr><tc{merge}><txBody><p><r><t>{text}</t></r></p></txBody></tc>"
                        f"<tc><txBody><p><r><t>{other}</t></r></p></txBody></tc></tr>"
                        for merge, text, other in [(' rowSpan="2"', "Norte", "Ana"), (' vMerge="1"', "", "Luis")]
                    )
                    + "</tbl></sld>"
                },
            ),
            documents.open_document(
                '<table:table><table:table-row><table:table-cell table:number-rows-spanned="2"><text:p>Norte</text:p>'
                "</table:table-cell><table:table-cell><text:p>Ana</text:p></table:table-cell></table:table-row>"
                "<table:table-row><table:covered-table-cell/><table:table-cell><text:p>Luis</text:p>"
                "</table:table-cell></table:table-row></table:table>"
            ),
            b"<!doctype html><table><tr><td rowspan=2>Norte<td>Ana<tr><td>Luis</table>",
        ],
        ids=["docx", "pptx", "odt", "html"],
    )
    def test_a_high_cell_is_said_in_every_row(self, read, data):
        assert text_of(read(data)[1]) == "Norte | Ana\nNorte | Luis"

    def test_a_list_of_single_cells_is_no_title(self, read):
        rows = [*([f"Pregunta {n}", ""] for n in range(4)), *([f"opción {n}", "no"] for n in range(100))]
        assert read(documents.word(rows))[1][0].text.split("\n")[-1] == "opción 99 | no"


class TestHtmlTables:
    def test_an_empty_cell_keeps_its_place(self, read):
        rows = "".join(f"<tr><td>R{n}</td><td></td><td>a{n}@b.es</td></tr>" for n in range(100))
        html = f"<!doctype html><table><tr><th>Región</th><th>Teléfono</th><th>Correo</th></tr>{rows}</table>"
        assert read(html.encode())[1][0].text.split("\n")[100] == "Región: R99 | Correo: a99@b.es"

    def test_a_high_cell_is_said_in_every_row_that_it_reaches(self, read):
        rows = "".join(
            f"<tr><td rowspan=2>R{n}</td><td>C{n}</td><td>a{n}@b.es</td></tr><tr><td>D{n}</td><td>d{n}@b.es</td></tr>"
            for n in range(50)
        )
        html = f"<!doctype html><table><tr><th>Región</th><th>Ciudad</th><th>Correo</th></tr>{rows}</table>"
        lines = read(html.encode())[1][0].text.split("\n")
        assert lines[99:] == [
            "Región: R49 | Ciudad: C49 | Correo: a49@b.es",
            "Región: R49 | Ciudad: D49 | Correo: d49@b.es",
        ]


class TestWord:
    def test_lists_notes_and_text_boxes_are_read_and_what_was_deleted_is_not(self, read):
        body = (
            '<w:document xmlns:w="w" xmlns:mc="mc"><w:body><w:p><w:r><w:t>uno</w:t><w:tab/><w:t>dos</w:t></w:r>'
            "<w:del><w:r><w:delText>borrado</w:delText></w:r></w:del><w:ins><w:r><w:t> tres</w:t></w:r></w:ins></w:p>"
            "<w:p><w:pPr><w:numPr/></w:pPr><w:r><w:t>a</w:t></w:r></w:p><w:p><w:pPr><w:numPr/></w:pPr><w:r><w:t>b</w:t></w:r></w:p>"
            "<w:p><w:r><mc:AlternateContent><mc:Choice><w:txbxContent><w:p><w:r><w:t>caja</w:t></w:r></w:p></w:txbxContent></mc:Choice>"
            "<mc:Fallback><w:txbxContent><w:p><w:r><w:t>caja</w:t></w:r></w:p></w:txbxContent></mc:Fallback></mc:AlternateContent></w:r></w:p>"
            "</w:body></w:document>"
        )
        _, pages = read(documents.rezipped(documents.word(), {"word/document.xml": body}))
        assert text_of(pages) == "uno\tdos tres\n\na\nb\n\ncaja"

    def test_paragraphs_have_the_numbers_that_word_writes_before_them(self, read):
        def level(depth: int, kind: str, text: str, style: str = "") -> str:
            linked = f'<w:pStyle w:val="{style}"/>' if style else ""
            return (
                f'<w:lvl w:ilvl="{depth}"><w:start w:val="1"/><w:numFmt w:val="{kind}"/>{linked}'
                f'<w:lvlText w:val="{text}"/></w:lvl>'
            )

        headings = level(0, "upperRoman", "%1.", "H1") + level(1, "decimal", "%1.%2", "H2")
        items = level(0, "lowerLetter", "%1)") + level(1, "bullet", "•")
        numbering = (
            f'<w:numbering xmlns:w="w"><w:abstractNum w:abstractNumId="0">{headings}</w:abstractNum>'
            f'<w:abstractNum w:abstractNumId="1">{items}</w:abstractNum>'
            '<w:num w:numId="1"><w:abstractNumId w:val="0"/></w:num>'
            '<w:num w:numId="2"><w:abstractNumId w:val="1"/></w:num>'
            '<w:num w:numId="3"><w:abstractNumId w:val="1"/><w:lvlOverride w:ilvl="0"><w:startOverride w:val="1"/>'
            "</w:lvlOverride></w:num></w:numbering>"
        )
        styles = (
            '<w:styles xmlns:w="w"><w:style w:styleId="H1"><w:pPr><w:numPr><w:numId w:val="1"/></w:numPr></w:pPr>'
            '</w:style><w:style w:styleId="H2"><w:basedOn w:val="H1"/></w:style></w:styles>'
        )

        def paragraph(text: str, style: str = "", listed: tuple[int, int] | None = None) -> str:
            place = f'<w:numPr><w:ilvl w:val="{listed[1]}"/><w:numId w:val="{listed[0]}"/></w:numPr>' if listed else ""
            return f'<w:p><w:pPr><w:pStyle w:val="{style}"/>{place}</w:pPr><w:r><w:t>{text}</w:t></w:r></w:p>'

        body = "".join(
            [
                *(paragraph("Uno", "H1"), paragraph("Frío", "H2"), paragraph("Calor", "H2"), paragraph("Dos", "H1")),
                *(paragraph("Norte", "H2"), paragraph("Sin número", "H2", (0, 0)), paragraph("Texto")),
                *(paragraph("x", listed=(2, 0)), paragraph("y", listed=(2, 1)), paragraph("z", listed=(2, 0))),
                *(paragraph("Otra"), paragraph("x", listed=(3, 0))),
            ]
        )
        related = "".join(
            f'<Relationship Id="r{kind}" Type="x/{kind}" Target="{kind}.xml"/>' for kind in ("numbering", "styles")
        )
        data = documents.rezipped(
            documents.word(),
            {
                "word/_rels/document.xml.rels": f"<Relationships>{related}</Relationships>",
                "word/numbering.xml": numbering,
                "word/styles.xml": styles,
                "word/document.xml": f'<w:document xmlns:w="w"><w:body>{body}</w:body></w:document>',
            },
        )
        assert text_of(read(data)[1]).split("\n\n") == [
            *("I. Uno", "I.1 Frío", "I.2 Calor", "II. Dos", "II.1 Norte", "Sin número", "Texto"),
            *("a) x\ny\nb) z", "Otra", "a) x"),
        ]

    def test_diagrams_and_charts_are_read(self, read):
        kinds = {"diagramData": "diagrams/data1.xml", "chart": "charts/chart1.xml"}
        related = "".join(
            f'<Relationship Id="r{kind}" Type="x/{kind}" Target="{name}"/>' for kind, name in kinds.items()
        )
        data = documents.rezipped(
            documents.word("Antes."),
            {
                "word/_rels/document.xml.rels": f"<Relationships>{related}</Relationships>",
                "word/diagrams/data1.xml": "<dataModel><pt><t><p><r><t>Paso uno</t></r></p></t></pt></dataModel>",
                "word/charts/chart1.xml": "<chart><title><t>Caudal</t></title><ser><cat><v>enero</v></cat>"
                "<tx><v>B-7</v></tx><val><v>12</v></val></ser></chart>",
            },
        )
        assert text_of(read(data)[1]) == "Antes.\n\nPaso uno\n\nCaudal\nenero\nB-7 | 12"

    def test_a_document_of_another_case_or_the_strict_kind_is_read(self, read):
        strict = documents.rezipped(
            documents.word("hola"),
            {
                "word/document.xml": '<d:document xmlns:d="http://purl.oclc.org/ooxml/wordprocessingml/main"><d:body><d:p><d:r>'
                "<d:t>estricto</d:t></d:r></d:p></d:body></d:document>"
            },
        )
        assert text_of(read(strict)[1]) == "estricto"


class TestPowerPoint:
    def test_each_slide_is_a_page_with_its_notes_and_images(self, read):
        slides = [
            ("Bombas", ["La bomba B-7.", TABLE], "Preguntar a Ana."),
            ("Filtros", [documents.picture()], ""),
        ]
        found, (first, second) = read(documents.powerpoint(*slides))
        assert found.endswith("presentationml.presentation")
        assert first == Page(1, f"Bombas\n\nLa bomba B-7.\n\n{TABLE_LINES}\n\nPreguntar a Ana.")
        assert (second.number, second.text, len(second.images)) == (2, "Filtros", 1)


class TestExcel:
    def test_each_sheet_is_a_page_with_its_name(self, read):
        found, pages = read(documents.excel({"Válvulas": TABLE, "Nada": [], "Notas": [["hola"]]}))
        assert found.endswith("spreadsheetml.sheet")
        assert pages == [Page(1, f"Válvulas\n\n{TABLE_LINES}"), Page(2, ""), Page(3, "Notas\n\nhola")]

    def test_values_read_as_they_are_shown(self, read):
        row = [
            datetime.fromisoformat("2026-03-01T14:30"),
            date(2026, 3, 1),
            time(8, 15),
            0.125,
            3.0,
            1.5,
            True,
            None,
            "fin",
        ]
        _, (page,) = read(documents.excel({"H": [row]}, {"D1": "0.0%"}))
        assert page.text == "H\n\n2026-03-01 14:30:00 | 2026-03-01 | 08:15:00 | 12.5% | 3 | 1.5 | TRUE | fin"

    @pytest.mark.parametrize(
        ("value", "number_format", "shown"),
        [
            (1.125, "[h]:mm:ss", "27:00:00"),
            (timedelta(hours=26, minutes=30), "[h]:mm", "26:30:00"),
            (0.5, "[mm]:ss", "12:00:00"),
            (-0.25, "[h]:mm:ss", "-6:00:00"),
            (1.5, "h:mm", "12:00:00"),
            (0.25, "h:mm AM/PM", "06:00:00"),
            (1234.5, '#,##0.00_d"h"', "1234.5"),
            (1234.5, "[Red]#,##0.00", "1234.5"),
            (46082, "d/m/yyyy", "2026-03-01"),
            (46082.5, "d/m h:mm", "2026-03-01 12:00:00"),
        ],
    )
    def test_a_duration_is_no_time_of_day(self, read, value, number_format, shown):
        _, (page,) = read(documents.excel({"H": [[value]]}, {"A1": number_format}))
        assert page.text == f"H\n\n{shown}"

    def test_a_formula_shows_the_value_that_was_computed_and_an_error_shows_nothing(self, read):
        sheet = (
            '<worksheet xmlns="s"><sheetData><row r="1"><c r="A1"><f>1+1</f><v>2</v></c>'
            '<c r="C1" t="str"><f>x</f><v>dos</v></c><c r="D1" t="e"><v>#REF!</v></c>'
            '<c r="E1" t="inlineStr"><is><t>en línea</t></is></c></row></sheetData></worksheet>'
        )
        changed = documents.rezipped(documents.excel({"H": [["x"]]}), {"xl/worksheets/sheet1.xml": sheet})
        assert read(changed)[1][0].text == "H\n\n2 | dos | en línea"

    def test_characters_that_are_written_by_number_are_read(self, read):
        sheet = (
            '<worksheet xmlns="s"><sheetData><row r="1"><c r="A1" t="inlineStr"><is><t>uno_x000D_\ndos</t></is></c>'
            '<c r="B1" t="str"><v>a_x005F_x000D_</v></c></row></sheetData></worksheet>'
        )
        changed = documents.rezipped(documents.excel({"H": [["x"]]}), {"xl/worksheets/sheet1.xml": sheet})
        assert read(changed)[1][0].text == "H\n\nuno dos | a_x000D_"

    def test_blank_rows_part_tables(self, read):
        _, (page,) = read(documents.excel({"H": [["a", "b"], [], ["c"]]}))
        assert page.text == "H\n\na | b\n\nc"


class TestDelimited:
    @pytest.mark.parametrize("delimiter", [",", ";", "\t", "|"])
    def test_any_usual_delimiter_is_found(self, read, delimiter):
        data = "\n".join(delimiter.join(row) for row in TABLE).encode("cp1252")
        assert read(data, "a.csv") == ("text/csv", [Page(None, TABLE_LINES)])

    @pytest.mark.parametrize(
        ("data", "text"),
        [
            ("0,5;1,3\n2,5;1,4", "0,5 | 1,3\n2,5 | 1,4"),
            ('a;b\n"x;y;z";2\n"q";3', "a | b\nx;y;z | 2\nq | 3"),
            ("a,b\nuno\u2028dos\x85tres,3", "a | b\nuno dos tres | 3"),
            ("sep=;\r\n1,2;3,4", "1,2 | 3,4"),
            ('a,b\nAna,"sí; no"\nLuis,"sí; no"', "a | b\nAna | sí; no\nLuis | sí; no"),
        ],
    )
    def test_commas_in_numbers_and_quoted_delimiters_part_no_cells(self, read, data, text):
        assert read(data.encode(), "a.csv")[1][0].text == text

    def test_quoted_cells_may_hold_delimiters_and_line_ends(self, read):
        assert read(b'a,b\n"1,5","dos\nl\xc3\xadneas"\n', "a.csv")[1][0].text == "a | b\n1,5 | dos líneas"


class TestHtml:
    def test_blocks_lines_and_entities_are_as_a_browser_shows_them(self, read):
        html = "<html><body><p>uno&nbsp;&amp;\n dos<br>tres</p><ul><li>a<li>b</ul><pre>x\n  y</pre><img alt='Logo' src='http://x/y.png'></body>"
        assert text_of(read(html.encode())[1]) == "uno\u00a0& dos\ntres\n\na\nb\n\nx\ny\n\nLogo"

    def test_the_declared_encoding_counts_where_it_is_not_utf_8(self, read):
        html = "<html><meta charset='windows-1251'><body>Давление</body></html>"
        assert text_of(read(html.encode("cp1251"))[1]) == "Давление"
        xhtml = "<?xml version='1.0' encoding='iso-8859-2'?><html><body>Čakovec</body></html>"
        assert text_of(read(xhtml.encode("iso-8859-2"))[1]) == "Čakovec"

    def test_a_table_for_layout_is_read_cell_by_cell(self, read):
        long = "La válvula regula el caudal. " * 20
        html = f"<html><table><tr><td><p>Menú</p></td><td><p>{long}</p><p>Fin.</p></td></tr></table>"
        assert text_of(read(html.encode())[1]) == f"Menú\n\n{long.strip()}\n\nFin."

    @pytest.mark.parametrize("cell", ["td", "th"])
    def test_a_long_cell_does_not_dissolve_a_table_of_data(self, read, cell):
        head = f"<tr><{cell}>Requisito</{cell}><{cell}>Texto</{cell}></tr>"
        long = "La válvula regula el caudal. " * 40
        row = f"<tr><td>R-0</td><td><p>{long}</p><p>Fin.</p></td></tr>"
        body = row if cell == "th" else 2 * row
        lines = text_of(read(f"<html><table>{head}{body}</table>".encode())[1]).split("\n")
        assert lines[:2] == ["Requisito | Texto", f"Requisito: R-0 | Texto: {long}Fin."]

    @pytest.mark.parametrize("inner", ["<h2>Menú</h2>", "<table><tr><td>Menú</table>"])
    def test_a_table_with_a_heading_or_a_table_in_a_long_cell_lays_out_the_page(self, read, inner):
        long = "La válvula regula el caudal. " * 20
        html = f"<html><table>{f'<tr><td>{inner}</td><td>{long}</td></tr>' * 3}</table>"
        assert text_of(read(html.encode())[1]) == "\n\n".join(["Menú", long.strip()] * 3)

    def test_images_within_the_page_are_shown(self, read):
        data = b64encode(documents.picture()).decode()
        images = f"<img src='data:image/png;base64,{data}'>Después.<img src='data:image/png;base64,x' alt='Logo'>"
        html = f"<html><p>Antes.{images}"
        first, second = read(html.encode())[1]
        assert (first.text, len(first.images), second.text, len(second.images)) == ("Antes.", 1, "Después. Logo", 0)

    @pytest.mark.parametrize(
        "html",
        [
            "<html><td>a<td>b",
            "<html><center>a</center>b",
            "<html><p>a<table><tr><td>b",
            "<html></p></table></div><p>a</td> b",
            "<html><b><i>a</b> b",
        ],
    )
    def test_broken_html_keeps_its_text(self, read, html):
        assert text_of(read(html.encode())[1]).split() == ["a", "b"]


class TestMail:
    def test_headers_text_images_and_attachments_are_there(self, read):
        data = documents.mail(
            "Hola, Luis.", html="<p>Hola, <b>Luis</b>.</p>", image=documents.picture(), attachment=("plano.dwg", b"x")
        )
        found, pages = read(data)
        assert found == "message/rfc822"
        assert [len(page.images) for page in pages] == [1, 0]
        assert text_of(pages).split("\n\n") == [
            "Subject: Revisión de la válvula\nFrom: ana@example.org\nTo: luis@example.org",
            "Hola, Luis.",
            "[Adjunto: plano.dwg]",
        ]

    def test_the_encoding_that_a_part_declares_counts(self, read):
        for kind, body in (("plain", "Čakovec"), ("html", "<p>Čakovec</p>")):
            head = f"From: a@b.c\nTo: a@b.c\nSubject: x\nContent-Type: text/{kind}; charset=iso-8859-2\n\n"
            assert "Čakovec" in text_of(read(head.encode() + body.encode("iso-8859-2"))[1])

    def test_a_subject_in_an_old_encoding_is_read(self, read):
        data = "From: José <a@b.c>\r\nTo: a@b.c\r\nSubject: Revisión\r\n\r\nhola\r\n\r\nadiós".encode("cp1252")
        assert text_of(read(data)[1]) == "Subject: Revisión\nFrom: José <a@b.c>\nTo: a@b.c\n\nhola\n\nadiós"

    def test_what_is_attached_to_the_html_between_its_parts_is_there_and_no_text_is_there_twice(self, read):
        html = [MIMEText(f"<p>{text}</p>", "html") for text in ("Hola.", "Adiós.")]
        drawing = MIMEApplication(b"x", name="plano.dwg")
        inner = MIMEMultipart("mixed", _subparts=[html[0], drawing, MIMEImage(documents.picture()), html[1]])
        mail = MIMEMultipart("alternative", _subparts=[MIMEText("Hola.\n\nAdiós."), inner])
        mail["From"], mail["To"], mail["Subject"] = "ana@b.c", "luis@b.c", "x"
        pages = read(mail.as_bytes())[1]
        assert text_of(pages).strip().split("\n\n")[1:] == ["Hola.", "Adiós.", "[Adjunto: plano.dwg]"]
        assert sum(len(page.images) for page in pages) == 1

    def test_a_plain_version_that_only_refers_to_the_other_does_not_stand_for_it(self, read):
        text = "La presión máxima del compresor es de diez bares."
        assert text in text_of(read(documents.mail("Abra el mensaje en HTML.", html=f"<p>{text}</p><p>{text}</p>"))[1])

    def test_parts_without_the_border_that_was_declared_are_text(self, read):
        head = b"From: a@b.c\nTo: a@b.c\nSubject: x\nContent-Type: multipart/mixed; boundary=A\n\n"
        assert "hola" in text_of(read(head + b"hola\n")[1])

    def test_a_message_only_in_html_is_read(self, read):
        assert "Hola, Luis." in text_of(read(documents.mail("", html="<p>Hola, <b>Luis</b>.</p>"))[1])


class TestBooks:
    def test_each_chapter_is_a_page_with_its_images(self, read):
        data = documents.book(
            "<h1>Uno</h1><p>Texto.</p>",
            "<p>Dos <img src='../img/a.png'/></p>",
            members={"OEBPS/img/a.png": documents.picture()},
        )
        found, (first, second) = read(data)
        assert found == "application/epub+zip"
        assert first == Page(1, "Uno\n\nTexto.")
        assert (second.number, second.text, len(second.images)) == (2, "Dos", 1)

    def test_a_cover_in_svg_is_an_image(self, read):
        cover = "<svg viewBox='0 0 1 1'><title>no</title><image xlink:href='../a.png'/></svg>"
        _, (page,) = read(documents.book(f"<div>{cover}</div>", members={"OEBPS/a.png": documents.picture()}))
        assert (page.text, len(page.images)) == ("", 1)


class TestRtf:
    def test_the_copy_of_an_image_for_old_readers_is_not_another_one(self, read):
        shown = documents.picture().hex()
        body = rf"a{{\*\shppict{{\pict\pngblip {shown}}}}}{{\nonshppict{{\pict\wmetafile8 010009000003}}}}b"
        assert [(page.text, len(page.images)) for page in read(documents.rtf(body))[1]] == [("a", 1), ("b", 0)]

    @pytest.mark.parametrize(
        ("body", "text"),
        [
            (r"ma\'f1ana \u8212\'97 fin", "mañana — fin"),
            (r"{\uc0\u1055\u1088\u1080} {\f1 \'cf\'f0\'e8}", "При При"),
            (r"\u-10179?\u-8704?", "\U0001f600"),
            (r"{\u8212}? {\uc2\u8212}ab {\uc2\u8212 ab}c {\uc0\u8212}d", "—? —ab —c —d"),
            (r"don\u8217\rquote t \u92\\ fin \u8212\u8211- x", "don’t \\ fin —– x"),
            (r"\u1055\'cf\u1088\'f0 {\f1 \'cf}\plain\'e9", "Пр Пé"),
            (r"a\{b\}\\c", r"a{b}\c"),
            (r"{\field{\*\fldinst HYPERLINK http://x}{\fldrslt aquí}}", "aquí"),
            (r"{\info{\title no}}{\*\desconocido no}sí{\bin4 \'}{}si", "sísi"),
        ],
    )
    def test_characters_come_in_every_way_that_the_format_has(self, read, body, text):
        assert text_of(read(documents.rtf(body))[1]) == text

    @pytest.mark.parametrize(
        ("head", "text"),
        [
            (r"\ansi\ansicpg1252\deff0{\fonttbl{\f0\fcharset204 Arial;}}", "При"),
            (r"\ansi\ansicpg1252\deff1{\fonttbl{\f0 Arial;}{\f1\fcharset204 Arial;}}\pard\plain ", "При"),
            (r"\ansi\ansicpg1251\deff0{\fonttbl{\f0\fcharset0 Arial;}}\plain ", "При"),
            (r"\ansi\ansicpg1252\deff1{\fonttbl{\f0\fcharset204 Arial;}}", "Ïðè"),
        ],
    )
    def test_text_before_any_font_is_in_the_default_one(self, read, head, text):
        assert text_of(read(rf"{{\rtf1{head}\'cf\'f0\'e8}}".encode())[1]) == text


class TestArchives:
    @pytest.mark.parametrize(
        "data",
        [
            documents.word("hola"),
            documents.powerpoint(("a", [], "")),
            documents.excel({"a": [["b"]]}),
            documents.book("a"),
        ],
    )
    def test_a_truncated_archive_is_corrupt(self, read, data):
        found = read(data)[0]
        with pytest.raises(ExtractionError, match="CORRUPT"):
            read(data[: len(data) // 2], "a", found)

    def test_an_archive_that_is_no_document_is_named(self, read):
        with pytest.raises(ExtractionError, match="UNSUPPORTED_MEDIA_TYPE: the file is a ZIP archive"):
            read(documents.archive({"../../a.txt": "hola"}), "a.zip")

    def test_an_encrypted_office_file_is_encrypted_and_an_old_one_is_old(self, read):
        container = b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1" + bytes(600)
        with pytest.raises(ExtractionError, match="ENCRYPTED"):
            read(container + "EncryptedPackage".encode("utf-16-le"), "a.docx")
        with pytest.raises(ExtractionError, match=r"UNSUPPORTED_MEDIA_TYPE: .* before 2007"):
            read(container, "a.doc")

    @pytest.mark.parametrize("data", [documents.entity_bomb(), documents.external_entity()])
    def test_no_entity_is_resolved(self, read, data):
        with pytest.raises(ResourceLimitError, match="xml_entities"):
            read(data)

    def test_a_part_that_is_missing_leaves_the_others(self, read):
        slides = documents.powerpoint(("a", [], ""), ("b", [], ""))
        broken = documents.rezipped(slides, {"ppt/slides/slide1.xml": b""})
        assert [page.text for page in read(broken)[1]] == ["", "b"]
