"""Uploads that stop, stall, grow too large, meet one another or lose what they depend on: nothing is half stored."""

from __future__ import annotations

import asyncio
import shutil
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import asyncpg
import pytest

from services.files.adapters import storage
from tests.support.files import FilesServer, Link, eventually, raw_request, read_answer, running_files
from tests.support.postgres import Database, PostgresServer

MULTIPART = "multipart/form-data; boundary=x"
PART_HEAD = b'--x\r\nContent-Disposition: form-data; name="file"; filename="a.txt"\r\n\r\n'


@pytest.fixture
async def files(database: Database, tmp_path: Path) -> AsyncIterator[FilesServer]:
    async with running_files(
        database, tmp_path / "objects", storage_grace_seconds=0, upload_max_bytes=50_000
    ) as server:
        yield server


async def only_file(files: FilesServer) -> dict[str, Any] | None:
    listed = (await files.http.get("/files")).json()["files"]
    return listed[0] if listed else None


async def garbage_is_collected(files: FilesServer) -> None:
    async def none_left() -> bool:
        return await files.query("SELECT FROM module_files_garbage") == []

    await eventually(none_left)


async def has_failed(files: FilesServer, file_id: int) -> bool:
    return bool((await files.file(file_id))["error_code"] == "UPLOAD_INCOMPLETE")


async def upload_has_begun(files: FilesServer) -> bool:
    return bool(await files.query("SELECT FROM module_files_garbage"))


async def expire(files: FilesServer) -> None:
    """Let the time of every upload be over."""
    await files.query("UPDATE module_files_file SET upload_deadline = now() WHERE state = 'UPLOADING'")
    await files.query("UPDATE module_files_garbage SET delete_after = now()")


async def test_a_body_that_stops_leaves_the_file_waiting_then_failed_and_new_bytes_revive_it(
    files: FilesServer,
) -> None:
    file_id = await files.register()
    head = f"PUT /files/{file_id}/content HTTP/1.1\nHost: x\nContent-Length: 1000"
    async with raw_request(files, head) as (_, writer):
        writer.write(b"x" * 500)
        await eventually(lambda: upload_has_begun(files))
    await garbage_is_collected(files)
    assert (await files.file(file_id))["status"] == "UPLOADING"

    await expire(files)

    await eventually(lambda: has_failed(files, file_id))
    body = await files.file(file_id)
    assert (body["error_code"], body["size_bytes"]) == ("UPLOAD_INCOMPLETE", None)
    assert body["finished_at"] is not None
    assert (files.objects(), await files.events()) == ([], [])

    answer = await files.http.put(f"/files/{file_id}/content", content=b"whole")

    assert (answer.status_code, answer.json()["status"], answer.json()["error_code"]) == (202, "PENDING", None)
    assert len(files.objects()) == 1


async def test_a_file_whose_bytes_never_come_ends_failed(files: FilesServer) -> None:
    file_id = await files.register()

    await expire(files)

    await eventually(lambda: has_failed(files, file_id))


async def test_a_form_that_stops_leaves_nothing(files: FilesServer) -> None:
    head = f"POST /files HTTP/1.1\nHost: x\nContent-Type: {MULTIPART}\nContent-Length: 1000"
    async with raw_request(files, head) as (_, writer):
        writer.write(PART_HEAD + b"half")
        await eventually(lambda: upload_has_begun(files))

    await garbage_is_collected(files)
    assert (await only_file(files), files.objects(), await files.events()) == (None, [], [])


async def test_a_form_that_ends_after_its_bytes_were_given_up_leaves_nothing(files: FilesServer) -> None:
    form = PART_HEAD + b"whole\r\n--x--\r\n"
    head = f"POST /files HTTP/1.1\nHost: x\nContent-Type: {MULTIPART}\nContent-Length: {len(form)}"
    async with raw_request(files, head) as (reader, writer):
        writer.write(form[:-10])
        await eventually(lambda: upload_has_begun(files))
        await expire(files)
        await garbage_is_collected(files)
        writer.write(form[-10:])
        status, problem = await read_answer(reader)

    assert (status, problem["code"]) == (503, "UPLOAD_EXPIRED")
    await garbage_is_collected(files)
    assert (await only_file(files), files.objects(), await files.events()) == (None, [], [])


async def test_a_form_is_answered_at_its_last_boundary_whatever_more_is_sent(files: FilesServer) -> None:
    form = PART_HEAD + b"whole\r\n--x--\r\n"
    head = f"POST /files HTTP/1.1\nHost: x\nContent-Type: {MULTIPART}\nTransfer-Encoding: chunked"
    async with raw_request(files, head) as (reader, writer):
        writer.write(b"%x\r\n%s\r\n" % (len(form), form))
        status, body = await read_answer(reader)
        assert (status, body["size_bytes"]) == (202, 5)

        writer.write(b"1\r\nx\r\n0\r\n\r\nGET /health/live HTTP/1.1\r\nHost: x\r\n\r\n")
        assert await read_answer(reader) == (200, {"status": "live"})


async def test_a_form_without_its_last_boundary_leaves_nothing(files: FilesServer) -> None:
    answer = await files.http.post("/files", content=PART_HEAD + b"half\r\n--x", headers={"Content-Type": MULTIPART})

    assert (answer.status_code, answer.json()["code"]) == (408, "UPLOAD_INCOMPLETE")
    await garbage_is_collected(files)
    assert (await only_file(files), files.objects()) == (None, [])


async def test_a_body_that_stalls_is_answered_and_given_up(database: Database, tmp_path: Path) -> None:
    async with running_files(database, tmp_path / "objects", upload_idle_seconds=1.0, storage_grace_seconds=0) as files:
        file_id = await files.register()

        async def stall(head: str, body: bytes) -> tuple[int, str]:
            async with raw_request(files, f"{head}\nHost: x\nContent-Length: 1000") as (reader, writer):
                writer.write(body)
                status, problem = await read_answer(reader)
                return status, problem["code"]

        answers = await asyncio.gather(
            stall(f"PUT /files/{file_id}/content HTTP/1.1", b"x"),
            stall(f"POST /files HTTP/1.1\nContent-Type: {MULTIPART}", PART_HEAD + b"x"),
            stall("POST /files HTTP/1.1\nContent-Type: application/json", b"{"),
        )

        assert answers == [(408, "UPLOAD_INCOMPLETE")] * 3

        async def all_failed() -> bool:
            listed = (await files.http.get("/files")).json()["files"]
            return [file["error_code"] for file in listed] == ["UPLOAD_INCOMPLETE"]

        await eventually(all_failed)
        await garbage_is_collected(files)
        assert files.objects() == []


async def test_a_slow_body_that_goes_on_is_not_given_up(database: Database, tmp_path: Path) -> None:
    async with running_files(database, tmp_path / "objects", upload_idle_seconds=2.0) as files:
        file_id = await files.register()
        head = f"PUT /files/{file_id}/content HTTP/1.1\nHost: x\nContent-Length: 12"
        async with raw_request(files, head) as (reader, writer):
            for _ in range(12):
                writer.write(b"x")
                await writer.drain()
                await asyncio.sleep(0.2)
            status, body = await read_answer(reader)

        assert (status, body["size_bytes"]) == (202, 12)


async def test_a_whole_body_is_stored_however_long_its_file_is_locked(database: Database, tmp_path: Path) -> None:
    async with running_files(database, tmp_path / "objects", upload_idle_seconds=2.0, storage_grace_seconds=0) as files:
        file_id = await files.upload(b"old")
        head = f"PUT /files/{file_id}/content HTTP/1.1\nHost: x\nContent-Length: 2"
        admin = await asyncpg.connect(database.admin_url)
        try:
            async with raw_request(files, head) as (reader, writer):
                await eventually(lambda: upload_has_begun(files))
                async with admin.transaction():
                    await admin.execute("SELECT FROM module_files_file FOR UPDATE")
                    writer.write(b"xx")
                    await asyncio.sleep(4)
                status, body = await read_answer(reader)
        finally:
            await admin.close()

    assert (status, body["size_bytes"]) == (202, 2)


async def test_a_whole_body_is_stored_however_long_storage_takes_and_its_file_waits(
    database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_durable = storage._make_durable

    def slowly(path: Path) -> None:
        time.sleep(3)
        make_durable(path)

    monkeypatch.setattr(storage, "_make_durable", slowly)
    async with running_files(database, tmp_path / "objects", upload_idle_seconds=1.0, storage_grace_seconds=0) as files:
        file_id = await files.register()
        put = asyncio.create_task(files.http.put(f"/files/{file_id}/content", content=b"xx"))
        post = asyncio.create_task(files.http.post("/files", files={"file": ("a.txt", b"xx")}))
        seen = set()
        while not put.done():
            seen.add((await files.file(file_id))["status"])
            await asyncio.sleep(0.05)

        assert seen <= {"UPLOADING", "PENDING"}
        assert [(await answer).status_code for answer in (put, post)] == [202, 202]


async def test_a_whole_body_is_stored_however_long_the_database_hung(
    postgres_server: PostgresServer, database: Database, tmp_path: Path
) -> None:
    async with running_files(database, tmp_path / "objects", upload_idle_seconds=2.0, storage_grace_seconds=0) as files:
        file_id = await files.register()
        head = f"PUT /files/{file_id}/content HTTP/1.1\nHost: x\nContent-Length: 2"
        async with raw_request(files, head) as (reader, writer):
            await eventually(lambda: upload_has_begun(files))
            with postgres_server.hung():
                writer.write(b"xx")
                await asyncio.sleep(4)
            status, body = await read_answer(reader)

    assert (status, body["size_bytes"]) == (202, 2)


async def test_a_body_that_is_announced_too_large_is_refused_before_it_is_sent(files: FilesServer) -> None:
    file_id = await files.register()
    for head in (
        f"PUT /files/{file_id}/content HTTP/1.1\nHost: x\nContent-Length: 50001",
        f"POST /files HTTP/1.1\nHost: x\nContent-Type: {MULTIPART}\nContent-Length: 1000000",
    ):
        async with raw_request(files, head) as (reader, _):
            status, problem = await read_answer(reader)
        assert (status, problem["code"]) == (413, "FILE_TOO_LARGE")

    body = await only_file(files)
    assert body is not None
    assert (body["file_id"], body["status"], body["error_code"]) == (file_id, "FAILED", "FILE_TOO_LARGE")
    assert files.objects() == []


async def test_a_body_that_grows_too_large_ends_failed(files: FilesServer) -> None:
    async def endless() -> AsyncIterator[bytes]:
        for _ in range(60):
            yield b"x" * 1_000

    file_id = await files.register()
    put = await files.http.put(f"/files/{file_id}/content", content=endless())
    post = await files.http.post("/files", files={"file": ("a.txt", b"x" * 50_001)})

    assert (put.status_code, put.json()["code"]) == (413, "FILE_TOO_LARGE")
    assert (post.status_code, post.json()["code"]) == (413, "FILE_TOO_LARGE")
    listed = (await files.http.get("/files")).json()["files"]
    assert [file["error_code"] for file in listed] == ["FILE_TOO_LARGE"]
    await garbage_is_collected(files)
    assert (files.objects(), await files.events()) == ([], [])


async def test_a_file_of_exactly_the_limit_is_accepted(files: FilesServer) -> None:
    await files.upload(b"x" * 50_000)
    answer = await files.http.post("/files", files={"file": ("a.txt", b"x" * 50_000)})

    assert answer.status_code == 202


async def test_a_replacement_that_fails_leaves_the_stored_bytes(files: FilesServer) -> None:
    file_id = await files.upload(b"good")

    head = f"PUT /files/{file_id}/content HTTP/1.1\nHost: x\nContent-Length: 1000"
    async with raw_request(files, head) as (_, writer):
        writer.write(b"x" * 500)
        await eventually(lambda: upload_has_begun(files))
    refused = await files.http.put(f"/files/{file_id}/content", content=b"x" * 50_001)

    assert refused.status_code == 413
    await garbage_is_collected(files)
    body = await files.file(file_id)
    assert (body["status"], body["revision"], body["error_code"]) == ("PENDING", 1, None)
    assert (await files.http.get(f"/files/{file_id}/content")).content == b"good"
    assert len(files.objects()) == 1


async def test_of_two_uploads_at_once_the_last_to_end_wins_and_nothing_else_is_kept(files: FilesServer) -> None:
    file_id = await files.register()
    head = f"PUT /files/{file_id}/content HTTP/1.1\nHost: x\nContent-Length: 5"
    async with raw_request(files, head) as (slow, slow_writer):
        slow_writer.write(b"slo")
        await slow_writer.drain()
        fast = await files.http.put(f"/files/{file_id}/content", content=b"fast")
        assert fast.json()["revision"] == 1
        slow_writer.write(b"ow")
        status, body = await read_answer(slow)

    assert (status, body["revision"]) == (202, 2)
    assert (await files.http.get(f"/files/{file_id}/content")).content == b"sloow"
    await garbage_is_collected(files)
    assert len(files.objects()) == 1


async def test_many_uploads_to_one_file_leave_one_object(files: FilesServer) -> None:
    file_id = await files.register()

    answers = await asyncio.gather(
        *(files.http.put(f"/files/{file_id}/content", content=bytes([number]) * 100) for number in range(10))
    )

    assert {answer.status_code for answer in answers} == {202}
    body = await files.file(file_id)
    assert body["revision"] == 10
    await garbage_is_collected(files)
    assert len(files.objects()) == 1
    content = (await files.http.get(f"/files/{file_id}/content")).content
    assert body["size_bytes"] == len(content) == 100
    assert len(set(content)) == 1


async def test_a_file_deleted_during_its_upload_leaves_nothing(files: FilesServer) -> None:
    file_id = await files.register()
    head = f"PUT /files/{file_id}/content HTTP/1.1\nHost: x\nContent-Length: 5"
    async with raw_request(files, head) as (reader, writer):
        writer.write(b"x")
        await writer.drain()
        await eventually(lambda: upload_has_begun(files))
        assert (await files.http.delete(f"/files/{file_id}")).status_code == 204
        writer.write(b"xxxx")
        status, problem = await read_answer(reader)

    assert (status, problem["code"]) == (404, "FILE_NOT_FOUND")
    await garbage_is_collected(files)
    assert files.objects() == []
    assert [name for name, _ in await files.events()] == ["FileDeleted"]


async def test_an_upload_that_ends_after_its_bytes_were_given_up_stores_nothing(files: FilesServer) -> None:
    file_id = await files.register()
    head = f"PUT /files/{file_id}/content HTTP/1.1\nHost: x\nContent-Length: 2"
    async with raw_request(files, head) as (reader, writer):
        writer.write(b"x")
        await writer.drain()
        await eventually(lambda: upload_has_begun(files))
        await expire(files)
        await garbage_is_collected(files)
        writer.write(b"x")
        status, problem = await read_answer(reader)

    assert (status, problem["code"]) == (503, "UPLOAD_EXPIRED")
    await garbage_is_collected(files)
    assert (files.objects(), await files.events()) == ([], [])
    assert (await files.file(file_id))["error_code"] == "UPLOAD_INCOMPLETE"


async def test_an_upload_whose_bytes_are_just_being_deleted_stores_nothing(files: FilesServer) -> None:
    file_id = await files.register()
    head = f"PUT /files/{file_id}/content HTTP/1.1\nHost: x\nContent-Length: 2"
    async with raw_request(files, head) as (reader, writer):
        writer.write(b"x")
        await writer.drain()
        await eventually(lambda: upload_has_begun(files))
        await files.query("UPDATE module_files_garbage SET doomed = true")
        writer.write(b"x")
        status, problem = await read_answer(reader)

    assert (status, problem["code"]) == (503, "UPLOAD_EXPIRED")
    await garbage_is_collected(files)
    assert (files.objects(), await files.events()) == ([], [])


async def test_deleted_bytes_go_once_their_grace_is_over(files: FilesServer) -> None:
    file_id = await files.upload()

    await files.http.delete(f"/files/{file_id}")

    await garbage_is_collected(files)
    assert files.objects() == []


async def test_an_upload_beyond_the_allowed_number_is_refused(database: Database, tmp_path: Path) -> None:
    async with running_files(database, tmp_path / "objects", max_uploads=1) as files:
        file_id = await files.register()
        head = f"PUT /files/{file_id}/content HTTP/1.1\nHost: x\nContent-Length: 2"
        async with raw_request(files, head) as (reader, writer):
            writer.write(b"x")
            await writer.drain()
            await eventually(lambda: upload_has_begun(files))
            for call in (
                files.http.put(f"/files/{file_id}/content", content=b"x"),
                files.http.post("/files", files={"file": ("a.txt", b"x")}),
            ):
                answer = await call
                assert (answer.status_code, answer.json()["code"]) == (503, "TOO_MANY_REQUESTS")
                assert answer.headers["retry-after"] == "1"
            writer.write(b"x")
            assert (await read_answer(reader))[0] == 202
        assert (await files.http.put(f"/files/{file_id}/content", content=b"x")).status_code == 202


@pytest.mark.parametrize(
    ("places", "slow_end"), [(1, (408, "UPLOAD_TOO_SLOW")), (2, (202, None))], ids=["none is free", "one is free"]
)
async def test_a_slow_sender_loses_the_place_to_the_next_where_none_is_free(
    database: Database, tmp_path: Path, places: int, slow_end: tuple[int, str | None]
) -> None:
    endless_hurry = {"upload_grace_seconds": 0, "upload_least_rate": 10**12}
    async with running_files(database, tmp_path / "objects", max_uploads=places, **endless_hurry) as files:
        file_id = await files.register()
        head = f"PUT /files/{file_id}/content HTTP/1.1\nHost: x\nContent-Length: 2"
        async with raw_request(files, head) as (reader, writer):
            writer.write(b"x")
            await eventually(lambda: upload_has_begun(files))
            assert (await files.http.post("/files", files={"file": ("a.txt", b"x")})).status_code == 202
            if slow_end[0] == 202:
                writer.write(b"x")
            status, answer = await read_answer(reader)
        assert (status, answer.get("code")) == slow_end
        # No place was lost on the way.
        assert (await files.http.put(f"/files/{file_id}/content", content=b"xx")).status_code == 202


async def test_a_refusal_reaches_a_client_that_still_sends(database: Database, tmp_path: Path) -> None:
    body = b"x" * 20_000_000
    async with running_files(database, tmp_path / "objects", max_uploads=1, max_requests=2) as files:
        file_id = await files.register()
        head = f"PUT /files/{file_id}/content HTTP/1.1\nHost: x\nContent-Length: 2"
        async with raw_request(files, head) as (_, writer), raw_request(files, head) as (_, other):
            writer.write(b"x")
            await eventually(lambda: upload_has_begun(files))
            by_uploads = await files.http.post("/files", files={"file": ("a.txt", body)})
            head = "POST /files HTTP/1.1\nHost: x\nContent-Type: application/json\nContent-Length: 2"
            async with raw_request(files, head):
                by_requests = await files.http.post("/files", files={"file": ("a.txt", body)})
            other.close()

    for answer in (by_uploads, by_requests):
        assert (answer.status_code, answer.json()["code"]) == (503, "TOO_MANY_REQUESTS")
        assert answer.headers["retry-after"] == "1"


async def test_storage_that_does_not_work_is_said_and_nothing_is_kept(files: FilesServer) -> None:
    stored = await files.upload()
    file_id = await files.register()
    shutil.rmtree(files.folder)
    files.folder.touch()

    put = await files.http.put(f"/files/{file_id}/content", content=b"x")
    post = await files.http.post("/files", files={"file": ("a.txt", b"x")})
    get = await files.http.get(f"/files/{stored}/content")
    ready = await files.http.get("/health/ready")

    for answer in (put, post, get):
        assert (answer.status_code, answer.json()["code"]) == (503, "STORAGE_UNAVAILABLE")
    assert ready.status_code == 503
    assert "STORAGE_UNAVAILABLE" in ready.json()["faults"]["storage"]
    assert (await files.file(file_id))["status"] == "UPLOADING"
    listed = (await files.http.get("/files")).json()["files"]
    assert [file["file_id"] for file in listed] == [file_id, stored]

    files.folder.unlink()
    await expire(files)

    await garbage_is_collected(files)
    assert (await files.http.put(f"/files/{file_id}/content", content=b"x")).status_code == 202


@pytest.fixture
async def link(database: Database) -> AsyncIterator[Link]:
    link = Link(urlsplit(database.files_url).port or 0)
    await link.mend()
    yield link
    await link.cut()


async def test_a_database_that_went_away_is_said_and_nothing_is_kept(
    database: Database, tmp_path: Path, link: Link
) -> None:
    address = urlsplit(database.files_url)
    linked = address._replace(netloc=f"{address.username}@127.0.0.1:{link.port}").geturl()
    async with running_files(
        database, tmp_path / "objects", files_database_url=linked, storage_grace_seconds=0
    ) as files:
        file_id = await files.register()
        head = f"PUT /files/{file_id}/content HTTP/1.1\nHost: x\nContent-Length: 2"
        async with raw_request(files, head) as (reader, writer):
            writer.write(b"x")
            await writer.drain()
            await eventually(lambda: upload_has_begun(files))
            await link.cut()
            writer.write(b"x")
            status, problem = await read_answer(reader)
        assert (status, problem["code"]) == (503, "DATABASE_UNAVAILABLE")
        for call in (
            files.http.get("/files"),
            files.http.post("/files", json={"name": "a"}),
            files.http.post("/files", files={"file": ("a.txt", b"x")}),
            files.http.delete(f"/files/{file_id}"),
        ):
            answer = await call
            assert (answer.status_code, answer.json()["code"]) == (503, "DATABASE_UNAVAILABLE")

        async def database_and_relay_are_faults() -> bool:
            ready = await files.http.get("/health/ready")
            return ready.status_code == 503 and set(ready.json()["faults"]) == {"database", "relay"}

        await eventually(database_and_relay_are_faults)
        assert (await files.http.get("/health/live")).status_code == 200

        await link.mend()

        assert (await files.file(file_id))["status"] == "UPLOADING"
        await expire(files)
        await garbage_is_collected(files)
        assert (files.objects(), await files.events()) == ([], [])
        assert (await files.http.put(f"/files/{file_id}/content", content=b"x")).status_code == 202
