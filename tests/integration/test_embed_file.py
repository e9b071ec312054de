"""A document through the whole reconcile: real tables, real reading, and a provider that counts what it is paid."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from services.chassis.kernel.errors import UnavailableError
from services.embeddings.adapters.describers.ocr import OcrImageDescriber
from services.embeddings.adapters.extractors import editions
from services.embeddings.adapters.extractors.sandbox import ExtractionLimits, SandboxedExtractor
from services.embeddings.adapters.postgres.file_work import PostgresFileWork
from services.embeddings.domain.file_work import Recipe
from tests.support import documents
from tests.support.embedding import World, running_worker
from tests.support.gemini_server import description, failure
from tests.support.postgres import Database
from tests.support.source_files import RECIPE, replace_file, uploaded

PROSE = "La presión máxima del compresor IGE12-3 no debe pasar de diez bares; ¿cuándo se cambia el filtro?"
REFUSED = failure(400, "INVALID_ARGUMENT", message="Unable to process input image")


@pytest.fixture(scope="module")
def extractor() -> Iterator[SandboxedExtractor]:
    extractor = SandboxedExtractor(ExtractionLimits())
    yield extractor
    asyncio.run(extractor.aclose())


@pytest.fixture
async def world(database: Database, extractor: SandboxedExtractor, tmp_path: Path) -> AsyncIterator[World]:
    async with running_worker(database, extractor, tmp_path) as world:
        yield world


def illustrated(*texts: str) -> bytes:
    """A PDF with two different images on one page, under a text."""
    images = [documents.picture([text]) for text in texts]
    return documents.pdf_with_images(
        [(image, (50, 300 + 220 * n, 370, 500 + 220 * n)) for n, image in enumerate(images)], text=PROSE
    )


async def test_an_image_that_fails_leaves_the_page_its_text_and_is_tried_again_alone(world: World) -> None:
    world.gemini.then(REFUSED, description("Un esquema con P1."))
    file_id = await world.store(illustrated("uno", "dos"))

    status = await world.status(file_id)
    assert (status["status"], status["outcome"], status["failed_descriptions"]) == ("COMPLETED", "INDEXED", 1)
    assert "Unable to process" in status["description_error"]
    assert status["page_kinds"] == {"text": 1}
    (text,) = await world.texts(file_id)
    assert " ".join(text.split()) == f"{PROSE} [Imagen: Un esquema con P1.]"
    assert world.paid() == (3, 1)  # with a probe, whether it refuses everything

    world.gemini.then(description("Un esquema con P2."))
    await world.again(file_id)
    status = await world.status(file_id)
    assert (status["status"], status["failed_descriptions"], status["description_error"]) == ("COMPLETED", 0, None)
    assert world.paid() == (1, 1)

    await world.again(file_id)
    assert (await world.status(file_id))["status"] == "COMPLETED"
    assert world.paid() == (0, 0)


async def test_what_was_described_is_not_paid_for_again_when_the_provider_goes_away(world: World) -> None:
    world.gemini.then(description("Un esquema con P1."), *[failure(503, "UNAVAILABLE")] * 50)
    with pytest.raises(UnavailableError):
        await world.store(illustrated("uno", "dos"))
    world.gemini.forget_script()
    world.paid()

    await asyncio.sleep(0.05)
    world.gemini.then(description("NONE"), description("Un esquema con P2."))
    expire = "UPDATE module_embeddings_files_file SET lease_expires_at = now() - interval '1 second' RETURNING file_id"
    file_id = await world.source.fetchval(expire)
    await world.work()
    assert world.paid()[0] == 2  # with a probe, whether it is back
    (text,) = await world.texts(file_id)
    assert "P1" in text
    assert "P2" in text
    kept = await world.source.fetch("SELECT position FROM module_embeddings_file_image ORDER BY position")
    assert [row["position"] for row in kept] == [0, 1]


async def test_a_picture_that_cannot_be_described_ends_empty_and_says_why(world: World) -> None:
    world.gemini.then(REFUSED)
    file_id = await world.store(documents.picture(), "foto.png")
    status = await world.status(file_id)
    assert (status["outcome"], status["outcome_reason"]) == ("EMPTY", "IMAGES_NOT_DESCRIBED")
    assert (status["page_kinds"], status["failed_descriptions"]) == ({"unreadable": 1}, 1)


async def test_what_nobody_can_decode_is_counted_and_named_and_asked_of_no_provider(world: World) -> None:
    drawing = documents.enhanced_metafile(size=(300, 200))
    word = documents.rezipped(documents.word(documents.picture()), {"word/media/image1.png": drawing})
    status = await world.status(await world.store(word, "plano.docx"))
    assert (status["outcome"], status["outcome_reason"]) == ("EMPTY", "IMAGES_UNREADABLE")
    assert status["failed_descriptions"] == 1
    assert status["description_error"].startswith("IMAGE_UNREADABLE: it cannot be decoded")
    assert world.paid() == (0, 0)


async def test_a_garbled_page_of_which_nothing_can_be_recognised_is_called_garbled(world: World) -> None:
    ocr = OcrImageDescriber()
    world.use_case = replace(world.use_case, describer=ocr)
    garbled = documents.garbled_pdf("~ ~ ~ ~ ~ ~")
    status = await world.status(await world.store(garbled, "arabe.pdf"))
    assert (status["outcome"], status["outcome_reason"]) == ("EMPTY", "GARBLED_TEXT")
    whole = documents.merged_pdf(documents.text_pdf(PROSE), garbled)
    status = await world.status(await world.store(whole, "medio.pdf"))
    assert (status["outcome"], status["outcome_reason"]) == ("INDEXED", "UNREADABLE_PAGES 2")
    await ocr.aclose()


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (
            documents.rezipped(documents.book("<p>Uno.</p>", "<p>Dos.</p>"), {"OEBPS/text/chapter 1.xhtml": b""}),
            "PAGES 2",
        ),
        (documents.word_of("<w:p><w:r><w:t>Uno.</w:t></w:r></w:p><w:altChunk r:id='a.bin'/>"), "PARTS 1"),
        (documents.word_of("<w:altChunk r:id='a.bin'/>"), "PARTS"),
    ],
)
async def test_a_part_that_cannot_be_read_is_told(world: World, data: bytes, reason: str) -> None:
    status = await world.status(await world.store(data, "libro"))
    assert status["outcome_reason"] == f"UNREADABLE_{reason}"


@pytest.mark.parametrize("quick", [{"quick_seconds": 0.01}, {"quick_images": 1}])
async def test_a_small_file_that_is_much_work_is_set_aside_once_as_a_large_one(
    world: World, quick: dict[str, float]
) -> None:
    world.gemini.then(description("Un esquema."), description("Una foto."))
    world.use_case = replace(world.use_case, **quick)
    file_id = await world.store(illustrated("uno", "dos"))
    assert (await world.status(file_id))["status"] == "PENDING"
    assert world.paid() == (0, 0)
    assert await world.use_case.work.claim(10, large=0) == []

    await world.work()
    status = await world.status(file_id)
    assert (status["status"], status["attempts"]) == ("COMPLETED", 1)


async def test_pages_are_counted_by_what_they_are(world: World) -> None:
    world.gemini.then(description("INFORME 2024"), description("Presión: 10 bar"))
    scan, text = documents.scanned_pdf(["INFORME 2024"]), documents.text_pdf(PROSE, "")
    file_id = await world.store(
        documents.merged_pdf(text, scan, documents.garbled_pdf(PROSE.encode("ascii", "ignore").decode()))
    )
    assert (await world.status(file_id))["page_kinds"] == {"text": 1, "empty": 1, "described": 1, "garbled": 1}
    note = await world.store(b"hola", "nota.txt")
    assert (await world.status(note))["page_kinds"] is None


async def test_a_file_that_fails_leaves_no_page_and_no_description(world: World) -> None:
    file_id = await world.store(illustrated("uno", "dos"))
    (world.folder / "manual.pdf").write_bytes(b"%PDF-1.7\nnada")
    claimed = world.use_case.work
    await replace_file(world.source, file_id)
    await world.mirror.mark([uploaded(file_id)])
    (claim,) = await claimed.claim(1)
    await claimed.fail(claim, "CORRUPT", "it is broken")
    for table in ("file_page", "file_image", "file_chunk"):
        assert await world.source.fetchval(f"SELECT count(*) FROM module_embeddings_{table}") == 0


async def test_other_settings_cut_again_what_is_there_and_pay_only_for_new_texts(world: World) -> None:
    file_id = await world.store("\n\n".join(f"{n}. {PROSE}" for n in range(40)).encode(), "a.txt")
    short = await world.store(b"hola", "b.txt")
    before, _ = await world.texts(file_id), world.paid()
    assert await world.mirror.sweep() == {}

    smaller = Recipe(500, 50, RECIPE.readers)
    await PostgresFileWork(world.pool, lease_seconds=60, recipe=smaller).announce_recipe()
    assert await world.mirror.sweep() == {"OTHER_RECIPE": 2}
    await world.work(smaller)

    after = await world.texts(file_id)
    assert len(after) > len(before)
    assert max(map(len, after)) <= 500
    assert world.paid() == (0, len(set(after) - set(before)))
    assert await world.texts(short) == ["hola"]
    assert await world.mirror.sweep() == {}


async def test_a_reader_that_has_learnt_reads_its_files_again_and_those_that_none_could_read(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    pdf = await world.store(documents.text_pdf(PROSE), "a.pdf")
    broken = await world.store(b"adios", "b.txt")
    await replace_file(world.source, broken)
    await world.mirror.mark([uploaded(broken)])
    (claim,) = await world.use_case.work.claim(1)
    await world.use_case.work.fail(claim, "UNSUPPORTED_MEDIA_TYPE", "nobody reads it")
    text = await world.store(b"hola", "c.txt")
    kept = await world.texts(text)
    world.paid()
    assert await world.mirror.sweep() == {}

    monkeypatch.setitem(editions.EDITIONS, "application/pdf", 100)
    learnt = Recipe(RECIPE.chunk_size, RECIPE.chunk_overlap, editions.readers("pymupdf"))
    await PostgresFileWork(world.pool, lease_seconds=60, recipe=learnt).announce_recipe()
    assert await world.mirror.sweep() == {"OTHER_RECIPE": 2}
    assert [(await world.status(file_id))["status"] for file_id in (pdf, broken, text)] == [
        "PENDING",
        "PENDING",
        "COMPLETED",
    ]
    await world.work(learnt)
    assert await world.texts(text) == kept
    assert world.paid() == (0, 1)  # of the one that had failed
    assert await world.mirror.sweep() == {}


async def test_a_changed_page_of_many_pays_for_its_own_texts_alone(world: World) -> None:
    pages = [f"Página {n}. {PROSE} " * 8 for n in range(30)]
    file_id = await world.store(documents.text_pdf(*pages))
    world.paid()
    pages[17] = "Otra página, con otro texto. " * 30
    (world.folder / "manual.pdf").write_bytes(documents.text_pdf(*pages))
    before = set(await world.texts(file_id))
    await world.again(file_id)
    new = set(await world.texts(file_id)) - before
    assert world.paid() == (0, len(new))
    assert len(new) <= 4


def boxes_of(spans: Sequence[int]) -> list[Sequence[int]]:
    return [spans[at : at + 6] for at in range(0, len(spans), 6)]


async def test_every_character_of_a_pdf_s_chunks_stands_in_a_span_of_its_page(world: World) -> None:
    file_id = await world.store(documents.text_pdf(*(f"Página {n}. {PROSE} " * 20 for n in range(3))))
    rows = await world.source.fetch(
        "SELECT number, width, height, unit, spans FROM module_embeddings_file_page WHERE file_id = $1", file_id
    )
    placed = {at for row in rows for start, end, *_ in boxes_of(row["spans"]) for at in range(start, end)}
    assert [(row["number"], row["width"], row["height"], row["unit"]) for row in rows] == [
        (number, 5950, 8420, "pt") for number in (1, 2, 3)
    ]
    for chunk in await world.source.fetch("SELECT * FROM module_embeddings_file_chunk WHERE file_id = $1", file_id):
        text = chunk["text"]
        assert all(chunk["char_start"] + at in placed for at, character in enumerate(text) if not character.isspace())
