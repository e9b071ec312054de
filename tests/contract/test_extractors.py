"""Every extractor keeps the same promises, and the registry knows a file by its content."""

import pkgutil
from importlib import import_module

import pytest

from services.embeddings.adapters import extractors
from services.embeddings.adapters.extractors.limits import ExtractionLimits
from services.embeddings.adapters.extractors.pictures import MAX_SIDE
from services.embeddings.adapters.extractors.registry import (
    declared_formats,
    formats,
    read_document,
    supported_media_types,
)
from services.embeddings.domain.document import Page, PageFault
from services.embeddings.domain.errors import ExtractionError
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

    @pytest.mark.parametrize(
        ("data", "name", "declared", "found"),
        [
            (documents.text_pdf("hola"), "a.txt", "text/plain", "application/pdf"),
            (b"junk before\n" + documents.text_pdf("hola"), "a", "", "application/pdf"),
            (b"hola", "a.pdf", "application/pdf", "text/plain"),
            (b"hola", "a", "application/octet-stream", "text/plain"),
            (b"# hola", "a.MD", "text/plain", "text/markdown"),
            (b"# hola", "a", "text/markdown; charset=utf-8", "text/markdown"),
            (documents.picture(), "a.pdf", "application/pdf", "image/png"),
            (documents.picture(kind="JPEG"), "a.png", "image/png", "image/jpeg"),
            (documents.picture(kind="WEBP"), "a", "", "image/webp"),
            (documents.tiff(["a"]), "a", "", "image/tiff"),
        ],
    )
    def test_content_says_what_a_file_is_and_the_name_only_what_content_cannot(self, read, data, name, declared, found):
        assert read(data, name, declared)[0] == found

    @pytest.mark.parametrize(
        ("data", "what"),
        [
            (b"\x7fELF" + bytes(600), "a program"),
            (b"GIF89a" + bytes(600), "a GIF image"),
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
        promises_three = documents.text_pdf("uno", "dos").replace(b"/Count 2", b"/Count 3")
        assert read(promises_three)[1] == [Page(1, "uno"), Page(2, "dos"), Page(3, "", fault=PageFault.UNREADABLE)]


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
            ("Příliš žluťoučký kůň úpěl ďábelské ódy. Tlak v nádrži nesmí překročit deset barů.", "cp1250"),
            ("タンクの圧力は十バールを超えてはなりません。フィルターは年に一度交換してください。", "shift_jis"),
            ("储罐压力不得超过十巴。过滤器每年应更换一次,根据制造商的说明。", "gb18030"),
            ("탱크 압력은 10바를 초과해서는 안 됩니다. 필터는 일년에 한 번 교체하십시오.", "euc_kr"),
        ],
    )
    def test_other_scripts_are_told_by_their_statistics(self, read, text, encoding):
        assert read(text.encode(encoding), "a.txt")[1] == [Page(None, text)]

    @pytest.mark.parametrize("text", ["Año", "presión", "caña de azúcar", "válvula, señal, caña, ángulo, óptimo, útil"])
    def test_a_few_spanish_words_are_not_taken_for_another_script(self, read, text):
        assert read(text.encode("cp1252"), "a.txt")[1] == [Page(None, text)]

    def test_what_no_database_stores_is_left_out(self, read):
        assert read(b"ho\x00la\x07\r\nmundo", "a.txt")[1] == [Page(None, "hola\nmundo")]


class TestImages:
    @pytest.mark.parametrize("kind", ["PNG", "JPEG", "WEBP", "TIFF"])
    def test_an_image_is_a_page_whose_image_is_to_be_described(self, read, kind):
        _, (page,) = read(documents.picture(kind=kind))
        (image,) = page.images
        assert (page.number, page.text, image.width, image.height) == (1, "", 320, 200)
        assert image.media_type in ("image/png", "image/jpeg")

    def test_each_frame_of_a_tiff_is_a_page(self, read):
        _, pages = read(documents.tiff(["uno"], ["dos"], ["tres"]))
        assert [page.number for page in pages] == [1, 2, 3]
        assert len({page.images[0].digest for page in pages}) == 3

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

    def test_images_come_in_the_order_of_the_page_and_each_once(self, read):
        one, two = documents.picture(["uno"]), documents.picture(["dos"], size=(400, 200))
        upper, middle, lower = (50, 100, 210, 200), (50, 300, 250, 400), (50, 500, 210, 600)
        _, (page,) = read(documents.pdf_with_images([(one, upper), (two, middle), (one, lower)], text=PROSE))
        assert [round(image.width / image.height, 1) for image in page.images] == [1.6, 2.0]

    def test_an_image_on_every_page_is_furniture_after_the_third(self, read):
        logo = [(documents.picture(["ACME"]), (50, 700, 130, 750))]
        _, pages = read(documents.pdf_with_images(*[logo] * 5, text=PROSE))
        assert [len(page.images) for page in pages] == [1, 1, 1, 0, 0]

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
        _, (page,) = read(documents.broken_image_pdf("hola mundo, otra vez por aquí"))
        assert page == Page(1, "hola mundo, otra vez por aquí")

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

    def test_characters_that_no_database_stores_are_left_out(self, read):
        _, (page,) = read(documents.one_page_pdf(b"BT /F1 12 Tf 50 700 Td (hola\\000 mundo) Tj ET"))
        assert page.text.replace("\ufffd", "") == "hola mundo"
