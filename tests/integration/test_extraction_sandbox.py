"""Hostile, broken and slow documents read by real processes: each ends with its reason, and the next one goes on."""

import asyncio
import signal
import socket
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import psutil
import pytest

from services.embeddings.adapters.extractors.sandbox import ExtractionLimits, SandboxedExtractor
from services.embeddings.adapters.extractors.sandbox.extractor import SandboxError
from services.embeddings.domain.document import ExtractedDocument, Page
from services.embeddings.domain.errors import ExtractionError, ResourceLimitError
from tests.support import documents
from tests.support.files import PATIENCE

LIMITS = ExtractionLimits()
MIB = 1024 * 1024
ROOT = Path(__file__).parents[2]
ENDLESS = documents.nested_forms_bomb(12)


@pytest.fixture(scope="module")
def sandbox():
    """A sandbox for all tests: what one document does to it, the next one meets."""
    extractor = SandboxedExtractor(LIMITS)
    yield extractor
    asyncio.run(extractor.aclose())


@pytest.fixture
def extract(sandbox, tmp_path):
    """Reads bytes in the sandbox, with the limits given."""

    async def extract(data: bytes, name: str = "file", media_type: str = "", **limits) -> ExtractedDocument:
        path = tmp_path / f"{len(list(tmp_path.iterdir()))}"
        path.write_bytes(data)
        sandbox._limits = replace(LIMITS, **limits)
        return await sandbox.extract(path, name=name, media_type=media_type)

    return extract


async def test_a_document_comes_back_as_its_pages(extract):
    document = await extract(documents.text_pdf("uno", "dos"))
    assert document == ExtractedDocument("application/pdf", (Page(1, "uno"), Page(2, "dos")))


async def test_images_come_back_as_they_were_encoded(extract):
    shown = documents.picture(["P1: 12 bar"])
    page = [(shown, (50, 300, 370, 500))]
    document = await extract(documents.pdf_with_images(page, page, text="La figura muestra las presiones."))
    (first,), (second,) = (page.images for page in document.pages)
    assert first == second
    assert (first.media_type, first.width, first.height) == ("image/png", 320, 200)
    assert first.data.startswith(b"\x89PNG")


async def test_many_documents_at_once_do_not_mix(extract):
    texts = [f"documento {n}" for n in range(12)]
    found = await asyncio.gather(*(extract(text.encode(), "a.txt") for text in texts))
    assert [document.pages[0].text for document in found] == texts


@pytest.mark.parametrize(
    ("limit", "data", "limits"),
    [
        ("input_bytes", b"hola " * 1000, {"input_bytes": 1000}),
        ("characters", b"hola " * 1000, {"characters": 1000}),
        ("characters", documents.text_bomb(20_000), {"characters": 100_000}),
        ("memory_bytes", documents.text_bomb(200_000), {"memory_bytes": 48 * MIB}),
        ("memory_bytes", documents.image_bomb(9_000), {"memory_bytes": 48 * MIB}),
        ("pixels", documents.image_bomb(30_000), {}),
        ("pixels", documents.picture(size=(640, 400)), {"pixels": 640 * 399}),
        ("pages", documents.pages_bomb(2_000), {"pages": 1_000}),
        ("pages", documents.pages_bomb(100_000), {}),
        ("pages", documents.tiff(["a"], ["b"], ["c"]), {"pages": 2}),
        ("images", documents.tiff(["a"], ["b"], ["c"]), {"images": 2}),
        ("output_bytes", documents.tiff(["a"], ["b"], ["c"]), {"output_bytes": 2_000}),
        ("unpacked_bytes", documents.zip_bomb(20), {"unpacked_bytes": 16 * MIB}),
        ("memory_bytes", documents.excel({"H": [["x" * 30_000] * 60]}), {"memory_bytes": 2 * MIB}),
        ("xml_entities", documents.entity_bomb(), {}),
        ("nesting", documents.one_page_pdf(b"q " * 100_000), {}),
        ("nesting", documents.nested_forms_bomb(1_000, fan=1), {}),
        ("nesting", documents.one_page_pdf(b"", b"/X " + b"<</A " * 10_000 + b"0" + b">>" * 10_000), {}),
        ("nesting", documents.nested_xml(10_000), {}),
        ("cpu_seconds", ENDLESS, {"cpu_seconds": 1}),
        ("wall_seconds", ENDLESS, {"wall_seconds": 0.5}),
    ],
)
async def test_a_document_that_costs_too_much_ends_with_the_limit_s_name_and_the_next_goes_on(
    extract, limit, data, limits
):
    with pytest.raises(ResourceLimitError) as caught:
        await extract(data, **limits)
    assert (caught.value.code, caught.value.limit) == ("RESOURCE_LIMIT", limit)
    assert caught.value.message.startswith(f"{limit}: ")
    assert (await extract(b"hola", "a.txt")).pages[0].text == "hola"


async def test_an_archive_within_an_archive_is_not_unpacked(extract):
    inner = documents.zip_bomb(64)
    nested = documents.rezipped(documents.word("hola"), {"word/embeddings/inner.docx": inner})
    document = await extract(nested, unpacked_bytes=4 * MIB)
    assert [page.text for page in document.pages] == ["hola"]
    for member in ("inner.zip", "inner"):
        with pytest.raises(ResourceLimitError, match="nesting: "):
            await extract(documents.archive({member: inner}), "a.zip")
    with pytest.raises(ResourceLimitError, match="unpacked_bytes: "):
        await extract(documents.archive({"a.bin": bytes(5 * MIB)}), "a.zip", unpacked_bytes=4 * MIB)
    with pytest.raises(ExtractionError, match="UNSUPPORTED_MEDIA_TYPE: the file is a ZIP archive"):
        await extract(documents.archive({"carta.docx": documents.word("hola")}), "a.zip")


async def test_documents_within_one_another_share_the_limit(extract):
    inner = documents.word_of("<w:altChunk r:id='a.txt'/>", {"a.txt": ("aFChunk", bytes(3 * MIB))})
    body = "<w:p><w:r><w:t>hola</w:t></w:r></w:p><w:altChunk r:id='a.docx'/>"
    outer = documents.word_of(body, {"a.docx": ("aFChunk", inner), "b.bin": ("x", bytes(2 * MIB))})
    with pytest.raises(ResourceLimitError, match="unpacked_bytes: "):
        await extract(outer, unpacked_bytes=4 * MIB)


async def test_a_path_that_leads_out_of_an_archive_writes_nothing_and_reads_nothing(extract, tmp_path):
    (tmp_path / "secret.png").write_bytes(documents.picture(["secreto"]))
    before = sorted(tmp_path.parent.rglob("*"))
    leading_out = {
        "../../written.txt": "x",
        "/written.txt": "x",
        "word/_rels/document.xml.rels": '<Relationships xmlns="r"><Relationship Id="r1" Type="t/image"'
        f' Target="../../../../../../../..{tmp_path}/secret.png"/></Relationships>',
        "word/document.xml": '<w:document xmlns:w="w" xmlns:a="a" xmlns:r="r"><w:body><w:p><w:r><w:t>hola</w:t></w:r>'
        '<w:r><a:blip r:embed="r1"/></w:r></w:p></w:body></w:document>',
    }
    document = await extract(documents.rezipped(documents.word(), leading_out))
    assert [(page.text, page.images) for page in document.pages] == [("hola", ())]
    (read,) = set(tmp_path.parent.rglob("*")) - set(before)
    assert read.parent == tmp_path  # the document itself


@pytest.mark.parametrize(
    ("code", "data"),
    [
        ("ENCRYPTED", documents.encrypted_pdf("secreto", user_password="clave")),
        ("CORRUPT", b"%PDF-1.7\n" + b"nada " * 100),
        ("CORRUPT", documents.text_pdf("uno")[:120]),
        ("CORRUPT", documents.picture()[:200]),
        ("UNSUPPORTED_MEDIA_TYPE", b"\x7fELF" + bytes(range(256))),
    ],
)
async def test_a_document_that_cannot_be_read_says_why(extract, code, data):
    with pytest.raises(ExtractionError) as caught:
        await extract(data)
    assert caught.value.code == code
    assert caught.value.remedy


async def test_a_crash_in_native_code_is_a_corrupt_document(extract, sandbox):
    task = asyncio.create_task(extract(ENDLESS))
    (await reading_process(sandbox)).send_signal(signal.SIGSEGV)
    with pytest.raises(ExtractionError, match=r"CORRUPT: .* crash .*SIGSEGV"):
        await task


async def test_a_document_whose_process_was_killed_with_hardly_any_memory_may_be_tried_again(extract, sandbox):
    task = asyncio.create_task(extract(ENDLESS))
    (await reading_process(sandbox)).kill()
    with pytest.raises(SandboxError, match="killed"):
        await task


async def test_a_process_killed_when_it_had_taken_nearly_all_its_memory_had_too_little(extract, sandbox):
    task = asyncio.create_task(extract(ENDLESS, memory_bytes=64 * MIB))
    (await reading_process(sandbox)).kill()
    with pytest.raises(ResourceLimitError, match="memory_bytes"):
        await task


async def test_the_process_is_killed_when_nobody_waits_for_it_any_more(extract, sandbox):
    task = asyncio.create_task(extract(ENDLESS))
    process = await reading_process(sandbox)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await ended(process)


async def test_the_process_is_killed_when_its_time_is_over(extract, sandbox):
    task = asyncio.create_task(extract(ENDLESS, wall_seconds=2))
    process = await reading_process(sandbox)
    process.suspend()  # it costs nothing while it is waited for
    with pytest.raises(ResourceLimitError, match="wall_seconds"):
        await task
    await ended(process)


async def test_the_sandbox_starts_again_after_it_was_killed(extract, sandbox):
    await extract(b"hola", "a.txt")
    zygote(sandbox).kill()
    await ended(zygote(sandbox))
    assert (await extract(b"hola", "a.txt")).pages[0].text == "hola"


async def test_a_document_in_work_when_the_sandbox_dies_may_be_tried_again(extract, sandbox):
    task = asyncio.create_task(extract(ENDLESS))
    process = await reading_process(sandbox)
    zygote(sandbox).kill()
    with pytest.raises(SandboxError, match="died"):
        await task
    await ended(process)


async def test_a_reading_process_knows_nothing_of_the_worker_s_environment(extract, sandbox):
    await extract(b"hola", "a.txt")
    assert not {"PATH", "HOME"} & zygote(sandbox).environ().keys()


async def test_closing_ends_every_process(tmp_path):
    path = tmp_path / "a.txt"
    path.write_text("hola")
    extractor = SandboxedExtractor(LIMITS)
    await extractor.extract(path, name="a.txt", media_type="")
    process = zygote(extractor)
    await extractor.aclose()
    assert not process.is_running()


LEFT_ALONE = """
import signal, socket
from services.embeddings.adapters.extractors.sandbox.zygote import Zygote

worker, control = socket.socketpair()
worker.close()
Zygote(control).serve()
signal.raise_signal(signal.SIGCHLD)
"""


def test_a_reading_process_that_ends_after_its_parent_s_work_is_no_fault():
    ended = subprocess.run([sys.executable, "-c", LEFT_ALONE], capture_output=True, text=True, cwd=ROOT, check=True)
    assert ended.stderr == ""


WORKER = """
import asyncio, signal, sys
from pathlib import Path
from services.embeddings.adapters.extractors.sandbox import ExtractionLimits, SandboxedExtractor

async def main():
    await SandboxedExtractor(ExtractionLimits()).extract(Path(sys.argv[1]), name="", media_type="")

signal.signal(signal.SIGINT, signal.default_int_handler)  # what a shell starts in the background ignores it
asyncio.run(main())
"""


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_no_process_outlives_its_worker(tmp_path, how):
    path = tmp_path / "endless.pdf"
    path.write_bytes(ENDLESS)
    with subprocess.Popen([sys.executable, "-c", WORKER, path], stderr=subprocess.DEVNULL, cwd=ROOT) as worker:
        offspring: list[psutil.Process] = []
        while len(offspring) < 2:
            time.sleep(0.01)
            offspring = psutil.Process(worker.pid).children(recursive=True)
        worker.send_signal(how)
    _, alive = psutil.wait_procs(offspring, PATIENCE)
    assert not alive


MADE_TO = """
import os, socket, sys
from services.embeddings.adapters.extractors.sandbox import reading_process

reading_process.read_document = lambda path, **_: exec(sys.argv[2])
reading_process.run(socket.socket(fileno=int(sys.argv[1])), os.getppid())
"""


@pytest.mark.parametrize("deed", ["socket.socket()", "os.system('true')", "open('made', 'w')", "os.remove('kept')"])
def test_a_reading_process_that_a_document_has_taken_over_cannot_reach_outside(tmp_path, deed):
    (tmp_path / "kept").touch()
    mine, its = socket.socketpair()
    with mine, its:
        command = [sys.executable, "-c", MADE_TO, str(its.fileno()), deed]
        mine.sendall(b'{"path": "", "name": "", "media_type": "", "limits": {}, "options": []}\n')
        ended = subprocess.run(
            command, pass_fds=[its.fileno()], cwd=tmp_path, env={"PYTHONPATH": str(ROOT)}, check=False
        )
        its.close()
        assert b"done" not in mine.recv(65536)
    assert ended.returncode == 1
    assert [path.name for path in tmp_path.iterdir()] == ["kept"]


def zygote(sandbox: SandboxedExtractor) -> psutil.Process:
    assert sandbox._zygote
    return psutil.Process(sandbox._zygote[0].pid)


async def reading_process(sandbox: SandboxedExtractor) -> psutil.Process:
    """The process that reads a document, as soon as it is hard at work."""
    async with asyncio.timeout(PATIENCE):
        while True:
            for process in zygote(sandbox).children() if sandbox._zygote else []:
                if process.cpu_times().user > 0.05:
                    return process
            await asyncio.sleep(0.01)


async def ended(process: psutil.Process) -> None:
    _, alive = await asyncio.to_thread(psutil.wait_procs, [process], PATIENCE)
    assert not alive
