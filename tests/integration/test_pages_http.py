"""Pages as images, and where on them a chunk stands: asked at the files service, answered by the embeddings service."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import Any

import httpx2
import pytest
import pytest_asyncio
from PIL import Image

from services.chassis.http.app import SCRATCH_HEADER
from services.embeddings.adapters.extractors.sandbox import ExtractionLimits, SandboxedExtractor
from services.embeddings.bootstrap import build_app
from services.embeddings.settings import EmbeddingsSettings
from tests.support import documents
from tests.support.embedding import World, running_worker
from tests.support.files import NO_BROKER, running_app, running_files
from tests.support.gemini_server import description
from tests.support.postgres import Database, PostgresServer
from tests.support.source_files import TENANT

pytestmark = pytest.mark.asyncio(loop_scope="module")

MARKED = "PSV-204"
LINES = [documents.Line(50, 100 + 20 * n, f"Línea {n}: el compresor no pasa de diez bares.") for n in range(15)]
LINES[12] = documents.Line(120, 600, f"La válvula {MARKED} abre a 11,5 bar.")


@dataclass
class Services:
    """A client of the files service that follows redirects, a worker, and the two services' addresses."""

    http: httpx2.AsyncClient
    world: World
    embeddings_url: str

    async def chunk(self, file_id: int, position: int = 0) -> dict[str, Any]:
        row = await self.world.source.fetchrow(
            "SELECT * FROM module_embeddings_file_chunk WHERE file_id = $1 AND position = $2", file_id, position
        )
        return dict(row)

    async def highlight(self, file_id: int, position: int = 0) -> dict[str, Any]:
        chunk = await self.chunk(file_id, position)
        answer = await self.http.get(f"/files/{file_id}/chunks/{chunk['id']}/highlight")
        assert answer.status_code == 200, answer.text
        body: dict[str, Any] = answer.json()
        return body

    async def page(self, file_id: int, number: int, **query: int) -> Image.Image:
        answer = await self.http.get(f"/files/{file_id}/pages/{number}.png", params=query)
        assert (answer.status_code, answer.headers["content-type"]) == (200, "image/png"), answer.text
        return Image.open(BytesIO(answer.content))


@pytest.fixture(scope="module")
def extractor() -> Iterator[SandboxedExtractor]:
    extractor = SandboxedExtractor(ExtractionLimits())
    yield extractor
    asyncio.run(extractor.aclose())


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def services(
    postgres_server: PostgresServer, extractor: SandboxedExtractor, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Services]:
    folder = tmp_path_factory.mktemp("objects")
    database = await postgres_server.clone()
    async with running_worker(database, extractor, folder) as world, running_embeddings(database, folder) as url:
        changes = {"tenant": TENANT, "embeddings_url": url, "scratch_tenants": True}
        async with running_files(database, folder, **changes) as files:
            files.http.follow_redirects = True
            yield Services(files.http, world, url)
    await postgres_server.drop(database)


def running_embeddings(database: Database, folder: Path) -> Any:
    settings = EmbeddingsSettings(
        embeddings_database_url=database.embeddings_url,
        embedding_space="gemini-embedding-001",
        storage_url=folder.as_uri(),
        tenant=TENANT,
        scratch_tenants=True,
        kafka_bootstrap=NO_BROKER,
    )
    return running_app(build_app(settings))


async def test_a_highlight_s_boxes_lie_over_the_words_of_the_chunk_as_the_page_shows_them(services: Services) -> None:
    for rotation in (0, 90):
        file_id = await services.world.store(documents.pdf([LINES], rotation=rotation), f"r{rotation}.pdf")
        body = await services.highlight(file_id)
        (page,) = body["pages"]
        assert (page["page"], page["width"], page["height"], page["unit"]) == (1, 595, 842, "pt")
        assert len(page["boxes"]) == len(LINES)
        image = (await services.page(file_id, 1, size=842)).convert("L").point(lambda value: 255 - value)
        assert image.size == (595, 842)
        for box in page["boxes"]:
            assert image.crop((box["x0"], box["y0"], box["x1"], box["y1"])).getbbox() is not None
            image.paste(0, (int(box["x0"]) - 1, int(box["y0"]) - 1, int(box["x1"]) + 2, int(box["y1"]) + 2))
        assert image.getbbox() is None


async def test_a_chunk_over_two_pages_has_its_boxes_on_each(services: Services) -> None:
    file_id = await services.world.store(documents.text_pdf("La válvula se abre cuando", "la presión pasa de 10 bar."))
    body = await services.highlight(file_id)
    assert [(page["page"], len(page["boxes"])) for page in body["pages"]] == [(1, 1), (2, 1)]
    assert (body["page_from"], body["page_to"]) == (1, 2)


async def test_a_picture_is_highlighted_where_it_stands_or_whole_and_a_flow_of_text_nowhere(services: Services) -> None:
    services.world.gemini.then(description("Un esquema con P1."))
    picture = await services.world.store(documents.picture(), "foto.png")
    (page,) = (await services.highlight(picture))["pages"]
    assert (page["width"], page["height"], page["unit"]) == (320, 200, "px")
    assert page["boxes"] == [{"x0": 0, "y0": 0, "x1": 320, "y1": 200}]
    place = (documents.picture(["otra"]), (50, 300, 370, 500))
    services.world.gemini.then(description("Una foto."))
    shown = documents.pdf_with_images([place], text="La figura muestra todo.")
    (page,) = (await services.highlight(await services.world.store(shown, "figura.pdf")))["pages"]
    assert page["boxes"][-1] == {"x0": 50, "y0": 300, "x1": 370, "y1": 500}
    assert (await services.highlight(await services.world.store(b"hola", "a.txt")))["pages"] == []


async def test_the_frames_of_an_image_are_pages_and_none_is_made_larger_than_asked(services: Services) -> None:
    file_id = await services.world.store(documents.tiff(["uno"], ["dos"]), "dos.tiff")
    first, second = await services.page(file_id, 1), await services.page(file_id, 2)
    assert (first.size, second.size) == ((320, 200), (320, 200))
    assert first.tobytes() != second.tobytes()
    assert (await services.page(file_id, 2, size=160)).size == (160, 100)


async def test_what_cannot_be_shown_is_said_with_a_stable_code(services: Services) -> None:
    two = await services.world.store(documents.text_pdf("uno", "dos"), "dos.pdf")
    note = await services.world.store(b"hola", "nota.txt")
    locked = await services.world.store(documents.text_pdf("uno"), "cerrado.pdf")
    (services.world.folder / "cerrado.pdf").write_bytes(documents.encrypted_pdf("uno", user_password="clave"))
    bomb = await services.world.store(documents.text_pdf("uno"), "bomba.pdf")
    (services.world.folder / "bomba.pdf").write_bytes(documents.pages_bomb(12_000))
    lost = await services.world.store(b"hola", "perdida.txt")
    (services.world.folder / "perdida.txt").unlink()
    (services.world.folder / "files").mkdir()
    chunk = (await services.chunk(two))["id"]
    refusals = {
        f"/files/{two}/pages/3.png": (404, "PAGE_NOT_FOUND"),
        f"/files/{two}/pages/0.png": (404, "PAGE_NOT_FOUND"),
        f"/files/{two}/pages/{10**12}.png": (404, "PAGE_NOT_FOUND"),
        f"/files/{two}/pages/x.png": (422, "INVALID_REQUEST"),
        f"/files/{two}/pages/1.png?size=0": (422, "INVALID_REQUEST"),
        f"/files/{two}/pages/1.png?size=-1": (422, "INVALID_REQUEST"),
        f"/files/{two}/pages/-1.png": (404, "PAGE_NOT_FOUND"),
        f"/files/{two}/pages/1.png?size=15": (422, "INVALID_REQUEST"),
        f"/files/{two}/pages/1.png?size=4001": (422, "INVALID_REQUEST"),
        f"/files/{two}/pages/1.png?sise=400": (422, "INVALID_REQUEST"),
        f"/files/{note}/pages/1.png": (404, "NO_PAGES"),
        f"/files/{locked}/pages/1.png": (409, "ENCRYPTED"),
        f"/files/{bomb}/pages/1.png": (409, "RESOURCE_LIMIT"),
        f"/files/{lost}/pages/1.png": (410, "CONTENT_MISSING"),
        f"/files/{10**19}/pages/1.png": (404, "FILE_NOT_FOUND"),
        f"/files/{two}/chunks/{chunk + 10**6}/highlight": (404, "CHUNK_NOT_FOUND"),
        f"/files/{note}/chunks/{chunk}/highlight": (404, "CHUNK_NOT_FOUND"),
        f"/files/{10**19}/chunks/{chunk}/highlight": (404, "FILE_NOT_FOUND"),
    }
    found = {}
    for path in refusals:
        answer = await services.http.get(path)
        found[path] = answer.status_code, answer.json()["code"]
    assert found == refusals


async def test_another_tenant_sees_neither_page_nor_highlight_at_either_service(services: Services) -> None:
    file_id = await services.world.store(documents.text_pdf("secreto"), "secreto.pdf")
    chunk = (await services.chunk(file_id))["id"]
    for path in (f"/files/{file_id}/pages/1.png", f"/files/{file_id}/chunks/{chunk}/highlight"):
        for address in (path, services.embeddings_url + path):
            answer = await services.http.get(address, headers={SCRATCH_HEADER: "other"})
            assert (answer.status_code, answer.json()["code"]) == (404, "FILE_NOT_FOUND")


async def test_an_upload_that_is_under_way_has_no_pages_yet(services: Services) -> None:
    registered = await services.http.post("/files", json={"name": "a.pdf"})
    answer = await services.http.get(f"/files/{registered.json()['file_id']}/pages/1.png")
    assert (answer.status_code, answer.json()["code"]) == (409, "UPLOAD_IN_PROGRESS")


async def test_without_the_address_of_the_embeddings_service_that_is_said(database: Database, tmp_path: Path) -> None:
    async with running_files(database, tmp_path) as files:
        answer = await files.http.get(f"/files/{await files.upload()}/pages/1.png")
    assert (answer.status_code, answer.json()["code"]) == (503, "PAGES_UNAVAILABLE")
