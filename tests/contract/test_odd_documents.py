"""Odd and legal documents, as programs write them, keep their text and say what they could not keep."""

import pytest

from services.embeddings.adapters.extractors.limits import ExtractionLimits
from services.embeddings.adapters.extractors.registry import read_document
from services.embeddings.domain.document import Page, PageFault
from services.embeddings.domain.errors import ExtractionError, ResourceLimitError
from tests.support import documents

UNREAD = Page(None, "", fault=PageFault.UNREADABLE)


@pytest.fixture
def read(tmp_path):
    """Reads bytes in this process, and returns the pages."""

    def read(data: bytes, name: str = "file", media_type: str = "") -> list[Page]:
        path = tmp_path / "content"
        path.write_bytes(data)
        return list(read_document(path, name=name, media_type=media_type, limits=ExtractionLimits())[1])

    return read


@pytest.fixture
def text_of(read):
    """Reads bytes in this process, and returns the text."""
    return lambda *file: "\n\n".join(page.text for page in read(*file))


def run(text: str, level: str = "") -> str:
    """A run of a Word paragraph."""
    return f'<w:r><w:rPr><w:vertAlign w:val="{level}"/></w:rPr><w:t>{text}</w:t></w:r>'


def part(name: str, text: str) -> str:
    """A part of a formula of Office."""
    return f"<m:{name}><m:r><m:t>{text}</m:t></m:r></m:{name}>"


def book_of(chapter: str) -> bytes:
    """A book with the source of its chapter."""
    return documents.rezipped(documents.book(""), {"OEBPS/text/chapter 0.xhtml": chapter})


class TestWord:
    @pytest.mark.parametrize(
        ("formula", "text"),
        [
            (f"<m:f><m:fPr/>{part('num', '1')}{part('den', '2')}</m:f>", "1/2"),
            (f"<m:r><m:t>3</m:t></m:r><m:f>{part('num', '1')}{part('den', '2')}</m:f>", "3 1/2"),
            (f"<m:f>{part('num', 'a+1')}{part('den', '-2')}</m:f>", "(a+1)/-2"),
            (f"<m:sSup>{part('e', '10')}{part('sup', '-3')}</m:sSup>", "10^-3"),
            (f"<m:sSub>{part('e', 'x')}{part('sub', '12')}</m:sSub>", "x_12"),
            (f"<m:sSubSup>{part('e', 'x')}{part('sub', 'i')}{part('sup', '2')}</m:sSubSup>", "x_i^2"),
            (f"<m:rad><m:deg/>{part('e', 'b+1')}</m:rad>", "√(b+1)"),
            (f"<m:rad>{part('deg', '3')}{part('e', '27')}</m:rad>", "√[3]27"),
            (f"<m:nary>{part('sub', 'i=1')}{part('sup', 'n')}{part('e', 'i')}</m:nary>", "∫_(i=1)^n i"),
            (f"<m:d>{part('e', 'a')}{part('e', 'b')}</m:d>", "(a|b)"),
            (f"<m:m><m:mr>{part('e', '1')}{part('e', '2')}</m:mr><m:mr>{part('e', '3')}</m:mr></m:m>", "1, 2; 3"),
            ("<m:r><m:t>1</m:t></m:r><m:r><m:t>2</m:t></m:r>", "12"),
        ],
    )
    def test_a_formula_is_written_on_one_line(self, text_of, formula, text):
        assert text_of(documents.word_of(f"<w:p><m:oMath>{formula}</m:oMath></w:p>")) == text
        beside = documents.word_of(f"<w:p>{run('p1')}<m:oMath>{formula}</m:oMath>{run('2')}</w:p>")
        assert text_of(beside).replace(" ", "") == f"p1{text}2".replace(" ", "")
        assert text_of(beside)[-2:] == " 2"

    @pytest.mark.parametrize(
        ("runs", "text"),
        [
            (run("10") + run("3", "superscript") + run(" bar"), "10^3 bar"),
            (run("10") + run("-", "superscript") + run("12", "superscript") + run("5"), "10^-12 5"),
            (run("10") + run("1", "subscript") + run("2", "superscript"), "10_1^2"),
            (run("m") + run("3", "superscript") + run("/h CO") + run("2", "subscript"), "m3/h CO2"),
        ],
    )
    def test_raised_and_lowered_digits_do_not_run_into_a_number(self, text_of, runs, text):
        assert text_of(documents.word_of(f"<w:p>{runs}</w:p>")) == text

    @pytest.mark.parametrize(
        ("name", "content"),
        [
            ("a.txt", "Importado, 12 bar.".encode("cp1252")),
            ("a.rtf", documents.rtf("Importado, 12 bar.")),
            ("a.docx", documents.word("Importado, 12 bar.")),
            ("a.html", "<p>Importado, 12 bar.</p>"),
            ("a.mht", documents.mail("", html="<p>Importado, 12 bar.</p>")),
        ],
    )
    def test_a_document_within_a_document_is_read(self, read, name, content):
        body = f"<w:p>{run('Antes.')}</w:p><w:altChunk r:id='{name}'/>"
        (page,) = read(documents.word_of(body, {name: ("aFChunk", content)}))
        assert page.text.startswith("Antes.")
        assert page.text.endswith("Importado, 12 bar.")

    @pytest.mark.parametrize(("name", "content"), [("a.bin", b"x"), ("a.docx", b"PK nada"), ("a.txt", b"")])
    def test_a_document_within_a_document_that_cannot_be_read_is_told(self, read, name, content):
        body = f"<w:p>{run('Antes.')}</w:p><w:altChunk r:id='{name}'/>"
        assert read(documents.word_of(body, {name: ("aFChunk", content)})) == [Page(None, "Antes."), UNREAD]

    def test_each_of_two_equal_notes_is_read_and_equal_headers_once(self, text_of):
        note = f"<w:footnote><w:p>{run('Ibídem.')}</w:p></w:footnote>"
        notes = f"<w:footnotes xmlns:w='w'>{note * 2}</w:footnotes>"
        header = f"<w:hdr xmlns:w='w'><w:p>{run('Manual')}</w:p></w:hdr>"
        parts = {"1.xml": ("header", header), "2.xml": ("header", header), "3.xml": ("footnotes", notes)}
        text = text_of(documents.word_of(f"<w:p>{run('Texto.')}</w:p>", parts))
        assert text == "Manual\n\nTexto.\n\nIbídem.\n\nIbídem."

    @pytest.mark.parametrize(
        ("inner", "text"),
        [
            ('<w:r><w:sym w:font="Symbol" w:char="F044"/></w:r>', "Δ"),
            ('<w:r><w:sym w:font="Wingdings" w:char="F0FE"/></w:r>', "☑"),
            ('<w:r><w:sym w:font="MS Gothic" w:char="2610"/></w:r>', "☐"),
            (f"<w:r><w:sym w:char='x'/></w:r>{run('tras')}", "\ufffdtras"),
            (f"<mc:AlternateContent><mc:Fallback>{run('viejo')}</mc:Fallback></mc:AlternateContent>", "viejo"),
            ('<w:r><w:pict><v:shape><v:textpath string="BORRADOR"/></v:shape></w:pict></w:r>', "BORRADOR"),
        ],
    )
    def test_symbols_alternatives_and_drawn_words_are_read(self, text_of, inner, text):
        assert text_of(documents.word_of(f"<w:p>{inner}</w:p>")) == text


class TestParts:
    @pytest.mark.parametrize(
        "data",
        [
            documents.rezipped(documents.book("a", "b"), {"OEBPS/text/chapter 0.xhtml": b""}),
            documents.rezipped(documents.powerpoint(("a", [], ""), ("b", [], "")), {"ppt/slides/slide1.xml": b""}),
            documents.rezipped(documents.excel({"a": [["x"]], "b": [["b"]]}), {"xl/worksheets/sheet1.xml": b"<row"}),
        ],
        ids=["epub", "pptx", "xlsx"],
    )
    def test_a_missing_or_broken_part_is_unreadable_and_leaves_the_others(self, read, data):
        first, second = read(data)
        assert first == Page(1, "", fault=PageFault.UNREADABLE)
        assert (second.number, second.text[:1], second.fault) == (2, "b", None)

    @pytest.mark.parametrize(
        "data",
        [
            documents.rezipped(documents.book("a"), {"OEBPS/text/chapter 0.xhtml": b""}),
            documents.rezipped(documents.book("a"), {"OEBPS/book.opf": b""}),
            documents.rezipped(documents.book("a"), {"OEBPS/book.opf": b"<package><manifest/><spine/></package>"}),
            documents.rezipped(documents.excel({"a": [["x"]]}), {"xl/worksheets/sheet1.xml": b"<row"}),
            documents.rezipped(documents.word("a"), {"word/document.xml": b""}),
        ],
        ids=["epub", "epub without a list", "epub of nothing", "xlsx", "docx"],
    )
    def test_a_document_without_any_part_that_can_be_read_is_corrupt(self, read, data):
        with pytest.raises(ExtractionError, match="CORRUPT"):
            read(data)


class TestHtml:
    @pytest.mark.parametrize(
        ("html", "text"),
        [
            ("<p>a <![CDATA[x < y & z]]> b</p>", "a x < y & z b"),
            ("<p>3<math><mfrac><mn>1</mn><mn>2</mn></mfrac></math> bar</p>", "3 1/2 bar"),
            (
                "<math><msup><mi>x</mi><mn>2</mn></msup><mo>+</mo><msqrt><mi>b</mi><mo>+</mo><mn>1</mn></msqrt></math>",
                "x^2+√(b+1)",
            ),
            ("<m:math><m:mn>1</m:mn><m:mn>2</m:mn></m:math>", "1 2"),
            ("<math><semantics><mi>x</mi><annotation>\\frac</annotation></semantics></math>", "x"),
            ("10<sup>3</sup> bar, 2024<sup>1</sup>, m<sup>2</sup>", "10^3 bar, 2024^1, m2"),
            (
                "<svg><title>no</title><text>uno</text><text>dos<tspan x='1'>tres</tspan></text></svg>fin",
                "uno\n\ndos\ntres\n\nfin",
            ),
            ("a<svg><path d='x'><p>resto</p><h1>fin</h1>", "a\n\nresto\n\nfin"),
            ("a<svg><title>no<p>resto</p></svg>fin", "a\n\nresto\n\nfin"),
            ("<math><mi>a</mi><p>resto", "a\n\nresto"),
            ("<object data='a.swf'><p>otra cosa</p></object>", "otra cosa"),
            ("<textarea>escrito</textarea>", "escrito"),
            (
                "<ol><li>a<ul><li>x</ul><li><p>b</p><ol type=a><li>c</ol><li value=7> d</ol>",
                "1. a\n\nx\n\n2. b\n\na. c\n\n7. d",
            ),
            ("<ol start=3><li><li>b</ol><ol style='list-style: none'><li>c</ol><ol><li></ol>d", "4. b\n\nc\n\nd"),
            ("<!-- abierto <p>resto</p>", "abierto\n\nresto"),
            ('<p title=\'abierto>a</p> <b class="x > y">b</b>', "a\n\nb"),
            ("a < b <!x> <?x?> c<", "a < b c<"),
        ],
    )
    def test_what_a_browser_shows_is_read_whole(self, text_of, html, text):
        assert text_of(f"<html>{html}".encode()) == text

    @pytest.mark.parametrize(
        "unit", ["<a b='", "<a b=''", "<a ", "<!--", "<![CDATA[", "</", "<?", "<svg><title>", "1<sup>"]
    )
    def test_no_broken_markup_is_read_again_and_again(self, read, unit):
        read(f"<html>{unit * 20_000}".encode())

    def test_definitions_are_no_text_and_entities_are_refused(self, text_of):
        assert text_of(book_of("<!DOCTYPE html [ <!ELEMENT a (b)> ]><html><p>hola</p></html>")) == "hola"
        with pytest.raises(ResourceLimitError, match="xml_entities"):
            text_of(book_of("<!DOCTYPE html [<!ENTITY a 'ja'><!ENTITY b '&a;&a;'>]><html>&b;</html>"))


def sheet_of(rows: str, after: str = "") -> bytes:
    """A workbook with the XML of the rows of its only sheet."""
    sheet = f'<worksheet xmlns="s"><sheetData>{rows}</sheetData>{after}</worksheet>'
    return documents.rezipped(documents.excel({"H": [["x"]]}), {"xl/worksheets/sheet1.xml": sheet})


class TestExcel:
    def test_a_sheet_costs_what_is_in_it_and_not_what_could_be(self, text_of):
        rows = "".join(f'<row r="{n}"><c r="XFD{n}"><v>{n}</v></c></row>' for n in range(1, 20_001))
        assert text_of(sheet_of(f'{rows}<row r="1048576"><c r="A1048576"><v>7</v></c></row>')).endswith("20000\n\n7")

    def test_a_cell_over_several_rows_is_said_in_each_of_them(self, text_of):
        rows = (
            '<row r="1"><c r="B1"><v>5</v></c><c r="D1"><v>1</v></c></row><row r="2"><c r="A2"><v>9</v></c>'
            '<c r="D2"><v>2</v></c></row><row r="3"><c r="B3"/></row><row r="4"><c r="D4"><v>4</v></c></row>'
        )
        merged = '<mergeCells><mergeCell ref="B1:C3"/><mergeCell ref="nada"/><mergeCell ref="Z9:Z99"/></mergeCells>'
        assert text_of(sheet_of(rows, merged)) == "H\n\n5 | 1\n9 | 5 | 2\n\n4"

    @pytest.mark.parametrize(
        ("cells", "text"),
        [
            ('<row r="uno"><c r="?"><v>1</v></c><c r="?"><v>2</v></c></row>', "1 | 2"),
            ('<row r="-3"><c r="A1" s="x"><v>1</v></c><c r="A1" s="-1"><v>2</v></c></row>', "1 | 2"),
            (
                '<row><c t="s"><v>99</v></c><c t="s"><v>x</v></c><c t="n"><v>12 bar</v></c></row>',
                "\ufffd | \ufffd | 12 bar",
            ),
        ],
    )
    def test_a_bad_attribute_costs_no_other_cell(self, text_of, cells, text):
        assert text_of(sheet_of(cells)) == f"H\n\n{text}"


class TestPowerPoint:
    @pytest.mark.parametrize(
        ("inner", "text"),
        [
            ('<r><t>10</t></r><r><rPr baseline="30000"/><t>3</t></r><r><rPr baseline="0"/><t> bar</t></r>', "10^3 bar"),
            (
                "<AlternateContent><Choice><m><oMath><f><num><r><t>1</t></r></num><den><r><t>2</t></r></den></f></oMath></m>"
                "</Choice><Fallback><r><t>viejo</t></r></Fallback></AlternateContent>",
                "1/2",
            ),
        ],
    )
    def test_formulas_and_raised_digits_are_written_on_the_line(self, text_of, inner, text):
        slide = f"<sld><sp><txBody><p>{inner}</p></txBody></sp></sld>"
        assert text_of(documents.rezipped(documents.powerpoint(("", [], "")), {"ppt/slides/slide1.xml": slide})) == text


class TestCsv:
    @pytest.mark.parametrize(
        ("data", "text"),
        [
            ('a, b\nuno, "dos, tres"\n', "a | b\nuno | dos, tres"),
            ('a,b\n"uno,1\ndos,2\ntres,3', 'a | b\n"uno | 1\ndos | 2\ntres | 3'),
            ('a,b\n1,2\n"', 'a | b\n1 | 2\n"'),
            ('a,b\nuno,"1\n', 'a | b\nuno | "1'),
            ('a,b\n5" tubo,3\n"6"" tubo",4', 'a | b\n5" tubo | 3\n6" tubo | 4'),
        ],
    )
    def test_a_quote_after_a_space_counts_and_one_without_its_end_does_not(self, text_of, data, text):
        assert text_of(data.encode(), "a.csv") == text


class TestRtf:
    @pytest.mark.parametrize(
        ("body", "text"),
        [
            (r"a\u128512?b\u-10179?\u-8704?", "a\U0001f600b\U0001f600"),
            (r"a\u99999999999?b\u-70000?c", "a\ufffdb\ufffdc"),
            (r"a\bin999999999 b", "ab"),
            (
                r"10{\super 3} bar, 10{\super -3\'41}{\i 5} m{\super 3}, 10\sub 1\nosupersub 2",
                "10^3 bar, 10^-3A5 m3, 10_1 2",
            ),
            (r"uno{\super 1}{\footnote {\super 1}nota} dos", "uno1 1nota  dos"),
            (r"{\mmath{\*\moMath{\mf{\*\mfPr x}{\mnum{\mr 1}}{\mden{\mr 2}}}}}", "1/2"),
            (r"{\f2 a}a{\f2\u-3998 ?\'b7}", "αaβ•"),
            (r"{\deleted no}sí", "sí"),
        ],
    )
    def test_numbers_out_of_bounds_lose_no_text(self, text_of, body, text):
        source = documents.rtf(body).replace(b"{\\fonttbl", rb"{\fonttbl{\f2\fcharset2 Symbol;}")
        assert text_of(source) == text


class TestMail:
    @pytest.mark.parametrize(
        ("plain", "html", "text"),
        [
            (
                "Vea la versión HTML.",
                "<p>El caudal es de 12 bar, y no más de eso.</p>",
                "El caudal es de 12 bar, y no más de eso.\n\nVea la versión HTML.",
            ),
            (
                "Vea el HTML adjunto, por favor.",
                "<p>Caudal: 12 bar.</p>",
                "Vea el HTML adjunto, por favor.\n\nCaudal: 12 bar.",
            ),
            (
                "*Hola* <https://a.b/c>\n\n[image: logo.png]",
                "<p><b>Hola</b></p>",
                "*Hola* <https://a.b/c>\n\n[image: logo.png]",
            ),
            (
                "Hola, Ana.\n\nPD: son 12 bar.",
                "<p>Hola, querida Ana, ¿cómo te va hoy a ti?</p>",
                "Hola, querida Ana, ¿cómo te va hoy a ti?\n\nPD: son 12 bar.",
            ),
        ],
    )
    def test_of_several_versions_the_fullest_is_read_and_what_it_lacks(self, text_of, plain, html, text):
        _, body = text_of(documents.mail(plain, html=html)).split("\n\n", 1)
        assert body == text

    def test_why_a_message_did_not_arrive_is_read(self, text_of):
        head = "From: a@b.c\nTo: a@b.c\nSubject: x\nContent-Type: multipart/report; boundary=B\n\n--B\n"
        head += "Content-Type: message/delivery-status\n\n"
        status = "Reporting-MTA: x\n\nDiagnostic-Code: smtp; 550 no existe\n\n--B--\n"
        assert text_of((head + status).encode()).endswith("Reporting-MTA: x\nDiagnostic-Code: smtp; 550 no existe")

    def test_an_invitation_says_what_when_and_where(self, text_of):
        calendar = (
            "BEGIN:VCALENDAR\r\nBEGIN:VTIMEZONE\r\nDTSTART:16010101T020000\r\nEND:VTIMEZONE\r\nBEGIN:VEVENT\r\n"
            "SUMMARY;LANGUAGE=es:Revisión\\, sala\r\n  norte\r\nDTSTART;TZID=x:20260301T100000\r\nEND:VEVENT\r\n"
        )
        head = "From: a@b.c\nTo: a@b.c\nSubject: x\nContent-Type: text/calendar; charset=utf-8\n\n"
        assert text_of((head + calendar).encode()).endswith("SUMMARY: Revisión, sala norte\nDTSTART: 20260301T100000")


class TestOpenDocument:
    def test_lists_and_headings_have_the_numbers_that_are_shown_before_them(self, text_of):
        def level(kind: str, depth: int, form: str, more: str = "") -> str:
            return f'<text:{kind} text:level="{depth}" style:num-format="{form}" style:num-suffix="." {more}/>'

        two = level("list-level-style-number", 1, "1") + level(
            "list-level-style-number", 2, "a", 'text:display-levels="2"'
        )
        outline = level("outline-level-style", 1, "I") + level("outline-level-style", 2, "1", 'text:display-levels="2"')
        styles = (
            f'<text:list-style style:name="L">{two}</text:list-style><text:outline-style>{outline}</text:outline-style>'
            '<text:list-style style:name="B"><text:list-level-style-bullet text:level="1"/></text:list-style>'
        )

        def item(*parts: str, more: str = "") -> str:
            texts = (part if part.startswith("<") else f"<text:p>{part}</text:p>" for part in parts)
            return f"<text:list-item {more}>{''.join(texts)}</text:list-item>"

        def listed(*items: str, style: str = "L", more: str = "") -> str:
            return f'<text:list text:style-name="{style}" {more}>{"".join(items)}</text:list>'

        def heading(text: str, depth: int) -> str:
            return f'<text:h text:outline-level="{depth}">{text}</text:h>'

        body = [
            *(heading("Uno", 1), heading("Frío", 2), heading("Dos", 1)),
            listed(item("a", "más"), item("b", listed(item("x"), item("y"))), item(listed(item("z")))),
            "<text:p>Texto</text:p>",
            listed(item("c"), more='text:continue-numbering="true"'),
            listed(item("d", more='text:start-value="7"'), "<text:list-header><text:p>e</text:p></text:list-header>"),
            listed(item("f"), style="B"),
        ]
        assert text_of(documents.open_document("".join(body), styles)).split("\n\n") == [
            *("I. Uno", "I.1. Frío", "II. Dos"),
            *("1. a\nmás\n2. b\n2.a. x\n2.b. y\n2.c. z", "Texto", "3. c", "7. d\ne", "f"),
        ]

    def test_formulas_and_raised_digits_are_written_on_the_line(self, text_of):
        style = '<style:style style:name="T1"><style:text-properties style:text-position="super 58%"/></style:style>'
        frame = '<draw:frame><draw:object xlink:href="./Object 1"/></draw:frame>'
        body = f'<text:p>10<text:span text:style-name="T1">3</text:span> bar, 2{frame}</text:p>'
        formula = b"<math><mfrac><mn>1</mn><mn>2</mn></mfrac></math>"
        data = documents.open_document(body, style, {"Object 1/content.xml": formula})
        assert text_of(data) == "10^3 bar, 2 1/2"
