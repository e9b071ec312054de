"""The files service from outside: what it answers, what it stores, what it announces."""

from __future__ import annotations

import asyncio
import json
import shutil
from collections.abc import AsyncIterator, Awaitable
from hashlib import sha256
from pathlib import Path

import httpx2
import pytest

from tests.support.files import TENANT, FilesServer, running_files
from tests.support.postgres import Database

JSON = {"Content-Type": "application/json"}
FORM = {"Content-Type": "multipart/form-data; boundary=x"}


@pytest.fixture
async def files(database: Database, tmp_path: Path) -> AsyncIterator[FilesServer]:
    async with running_files(database, tmp_path / "objects") as server:
        yield server


async def test_a_file_has_its_id_before_a_byte_is_sent(files: FilesServer) -> None:
    answer = await files.http.post("/files", json={"name": "Año 1.PDF", "metadata": {"área": [1, None]}})

    assert answer.status_code == 201
    body = answer.json()
    assert answer.headers["location"] == f"/files/{body['file_id']}"
    assert body["status"] == "UPLOADING"
    assert body["media_type"] == "application/pdf"
    assert body["metadata"] == {"área": [1, None]}
    assert (body["size_bytes"], body["sha256"], body["revision"], body["chunks"]) == (None, None, 0, 0)
    assert files.objects() == []
    assert await files.events() == []


async def test_sent_bytes_are_stored_announced_and_come_back(files: FilesServer) -> None:
    content = bytes(range(256)) * 5_000
    file_id = await files.register('Año "1" 100%.bin', mediaType="Text/Plain; charset=utf-8")

    answer = await files.http.put(f"/files/{file_id}/content", content=content)

    assert answer.status_code == 202
    body = answer.json()
    assert (body["status"], body["size_bytes"], body["revision"]) == ("PENDING", len(content), 1)
    assert body["sha256"] == sha256(content).hexdigest()
    assert await files.events() == [("FileUploaded", {"id": file_id, "name": 'Año "1" 100%.bin', "tenant": TENANT})]
    back = await files.http.get(f"/files/{file_id}/content")
    assert back.content == content
    assert back.headers["content-type"] == "text/plain; charset=utf-8"
    assert back.headers["x-content-type-options"] == "nosniff"
    assert back.headers["etag"] == f'"{body["sha256"]}"'
    assert back.headers["content-disposition"] == (
        "attachment; filename=\"A_o _1_ 100_.bin\"; filename*=UTF-8''A%C3%B1o%20%221%22%20100%25.bin"
    )
    assert await files.query("SELECT * FROM module_files_garbage") == []


async def test_multipart_registers_and_stores_in_one_call(files: FilesServer) -> None:
    answer = await files.http.post(
        "/files",
        data={"name": "b.md", "mediaType": "text/markdown", "metadata": '{"a": 1}'},
        files={"file": ("ignored.bin", b"# Title", "application/x-other")},
    )

    assert answer.status_code == 202
    body = answer.json()
    assert answer.headers["location"] == f"/files/{body['file_id']}"
    assert (body["name"], body["media_type"], body["metadata"]) == ("b.md", "text/markdown", {"a": 1})
    assert (body["status"], body["size_bytes"]) == ("PENDING", 7)
    assert (await files.http.get(f"/files/{body['file_id']}/content")).content == b"# Title"


async def test_a_part_says_its_name_and_its_type(files: FilesServer) -> None:
    for name, declared, media_type in (
        ("manual.pdf", "application/octet-stream", "application/pdf"),
        ("manual.pdf", "text/plain", "text/plain"),
        ("manual.unheard-of", None, "application/octet-stream"),
    ):
        answer = await files.http.post("/files", files={"file": (name, b"x", declared)})

        assert (answer.json()["name"], answer.json()["media_type"]) == (name, media_type)


async def test_an_empty_file_is_accepted(files: FilesServer) -> None:
    file_id = await files.upload(b"")
    answer = await files.http.post("/files", files={"file": ("empty.txt", b"")})

    for empty in (file_id, answer.json()["file_id"]):
        body = await files.file(empty)
        assert (body["status"], body["size_bytes"], body["sha256"]) == ("PENDING", 0, sha256().hexdigest())
        assert (await files.http.get(f"/files/{empty}/content")).content == b""


BAD_NAMES = [
    "",
    "   ",
    ".",
    "..",
    "a/b.txt",
    "a\\b.txt",
    "/etc/passwd",
    "a\nb",
    "a\x00b",
    "a\x7fb",
    "a\x85b",
    "x" * 256,
    "a\ud800b",
    "\udfff",
]
BAD_FILE_NAMES = (b"..", b"a/b.txt", b"a\\\\b", b"caf\xe9.txt", b"a\tb")


async def test_a_bad_name_is_refused(files: FilesServer) -> None:
    # httpx2 would refuse to send a lone surrogate; escaped, it is plain ASCII.
    answers = [await files.http.post("/files", content=json.dumps({"name": name}), headers=JSON) for name in BAD_NAMES]
    for name in BAD_FILE_NAMES:
        disposition = b'Content-Disposition: form-data; name="file"; filename="' + name + b'"'
        answers.append(await files.http.post("/files", content=form((disposition, b"hi")), headers=FORM))

    for name, answer in zip([*BAD_NAMES, *BAD_FILE_NAMES], answers, strict=True):
        assert (answer.status_code, answer.json()["code"]) == (422, "INVALID_NAME"), name
    assert (await files.http.get("/files")).json() == {"files": [], "next": None}


BAD_REGISTRATIONS = [
    ('{"name": "a", "mediaType": "pdf"}', "INVALID_MEDIA_TYPE", "mediaType"),
    ('{"name": "a", "mediaType": "text/plain\\r\\nX: 1"}', "INVALID_MEDIA_TYPE", "mediaType"),
    ('{"name": "a", "mediaType": "\\ud800"}', "INVALID_MEDIA_TYPE", "mediaType"),
    ('{"name": "a", "media_type": "text/plain"}', "INVALID_REQUEST", "body.media_type"),
    ('{"name": "a", "\\ud800": 1}', "INVALID_REQUEST", "body"),
    ('{"mediaType": "text/plain"}', "INVALID_REQUEST", "body.name"),
    ('{"name": 7}', "INVALID_REQUEST", "body.name"),
    ('{"name": "a", "metadata": []}', "INVALID_REQUEST", "body.metadata"),
    ('{"name": "a", "metadata": {"k": "\\u0000"}}', "INVALID_REQUEST", "metadata"),
    ('{"name": "a", "metadata": {"k": ["\\ud800"]}}', "INVALID_REQUEST", "metadata"),
    ('{"name": "a", "metadata": {"k": 1e999}}', "INVALID_REQUEST", "metadata"),
    ('{"name": "a", "metadata": {"k": NaN}}', "INVALID_REQUEST", "metadata"),
    ('{"name": "a", "metadata": {"k": "' + "x" * 16_384 + '"}}', "INVALID_REQUEST", "metadata"),
    ('{"name": "a", "metadata": {"k": ' + "[" * 50 + "]" * 50 + "}}", "INVALID_REQUEST", "metadata"),
    ('{"name": "a", "metadata": {"k": ' + "9" * 5_000 + "}}", "INVALID_REQUEST", "body"),
    ("[" * 30_000, "INVALID_REQUEST", "body"),
    ("[]", "INVALID_REQUEST", "body"),
    ("{", "INVALID_REQUEST", "body"),
    ("", "INVALID_REQUEST", "body"),
    ("\xff", "INVALID_REQUEST", "body"),
    ('{"name": "' + "x" * 70_000 + '"}', "INVALID_REQUEST", "body"),
]


async def test_a_bad_registration_is_refused(files: FilesServer) -> None:
    for body, code, where in BAD_REGISTRATIONS:
        answer = await files.http.post("/files", content=body.encode("latin-1"), headers=JSON)

        assert (answer.status_code, answer.json()["code"], answer.json()["where"]) == (422, code, where), body
    assert (await files.http.get("/files")).json()["files"] == []


def form(*parts: tuple[bytes, bytes]) -> bytes:
    """A multipart body of the given part headers and contents."""
    return b"".join(b"--x\r\n" + head + b"\r\n\r\n" + content + b"\r\n" for head, content in parts) + b"--x--\r\n"


def field(name: bytes, value: bytes) -> tuple[bytes, bytes]:
    """A part that is a field."""
    return b'Content-Disposition: form-data; name="' + name + b'"', value


A_FILE = (b'Content-Disposition: form-data; name="file"; filename="a.txt"', b"hi")
A_NAME = field(b"name", b"b.txt")

BAD_FORMS = [
    (form(A_NAME), "body.file"),
    (form(), "body.file"),
    (form(A_NAME, A_NAME, A_FILE), "body.name"),
    (form(field(b"colour", b"red"), A_FILE), "body.colour"),
    (form(field(b"metadata", b"{"), A_FILE), "metadata"),
    (form(field(b"metadata", b"[]"), A_FILE), "metadata"),
    (form(field(b"name", b"\xff"), A_FILE), "body.name"),
    (form(field(b"name", b"x" * 70_000), A_FILE), "body"),
    (form((b"Content-Disposition: form-data", b""), A_FILE), "body."),
    (form((b"No colon here", b""), A_FILE), "body"),
    (b"no boundary at all", "body"),
    (form(A_FILE, A_NAME), "body.name"),
    (form(A_FILE, A_FILE), "body.file"),
]


async def test_a_bad_form_is_refused_and_leaves_no_file(files: FilesServer) -> None:
    for body, where in BAD_FORMS:
        answer = await files.http.post("/files", content=body, headers=FORM)

        assert (answer.status_code, answer.json()["code"]) == (422, "INVALID_REQUEST"), body
        assert answer.json()["where"] == where, body
    assert (await files.http.get("/files")).json()["files"] == []


async def test_another_content_type_is_refused(files: FilesServer) -> None:
    for content_type in ("", "text/plain", "multipart/form-data", "multipart/form-data; boundary=" + "x" * 1_000):
        answer = await files.http.post("/files", content=b"x", headers={"Content-Type": content_type})

        assert (answer.status_code, answer.json()["code"]) == (422, "INVALID_REQUEST"), content_type
        assert answer.json()["where"] == "header.content-type"


async def test_a_repeat_under_the_same_key_makes_no_second_file(files: FilesServer) -> None:
    def register(key: str, **changes: object) -> Awaitable[httpx2.Response]:
        return files.http.post("/files", json={"name": "a.txt", **changes}, headers={"Idempotency-Key": key})

    def send(key: str, content: bytes = b"hi", **fields: str) -> Awaitable[httpx2.Response]:
        form = {"file": ("a.txt", content)}
        return files.http.post("/files", files=form, data=fields, headers={"Idempotency-Key": key})

    for ask, status, other in (
        (register, 201, register("register", metadata={"a": 1})),
        (send, 202, send("send", b"other")),
    ):
        answers = await asyncio.gather(*(ask(ask.__name__) for _ in range(5)))
        answers.append(await ask(ask.__name__))
        assert {answer.status_code for answer in answers} == {status}
        assert len({answer.text for answer in answers}) == len({answer.headers["location"] for answer in answers}) == 1
        refused = await other
        assert (refused.status_code, refused.json()["code"]) == (409, "IDEMPOTENCY_KEY_REUSED")
    assert (await register("send")).json()["code"] == "IDEMPOTENCY_KEY_REUSED"

    sent, registered = (await files.http.get("/files")).json()["files"]
    assert (registered["status"], sent["status"]) == ("UPLOADING", "PENDING")
    assert len(await files.events()) == 1
    [stored] = await files.query("SELECT storage_key FROM module_files_file WHERE state = 'STORED'")
    kept = await files.query("SELECT storage_key FROM module_files_garbage")
    assert stored["storage_key"] not in [row["storage_key"] for row in kept]

    await files.process(sent["file_id"], "COMPLETED", revision=1)
    assert (await send("send")).json()["status"] == "COMPLETED"
    await files.http.delete(f"/files/{sent['file_id']}")
    assert (await send("send", b"other")).json()["file_id"] > sent["file_id"]
    await files.query("UPDATE module_files_request SET tenant_id = 'other'")
    assert (await register("register")).json()["file_id"] > registered["file_id"]


async def test_a_key_that_is_none_is_refused(files: FilesServer) -> None:
    for key in (b"", b"a b", b"x" * 256, b"\xe9"):
        answer = await files.http.post("/files", json={"name": "a"}, headers=[(b"Idempotency-Key", key)])
        assert (answer.status_code, answer.json()["code"]) == (422, "INVALID_REQUEST"), key
        assert answer.json()["where"] == "header.Idempotency-Key"


async def test_bytes_that_storage_lost_are_gone_and_not_away(files: FilesServer) -> None:
    file_id = await files.upload()
    [key] = files.objects()
    (files.folder / key).unlink()

    gone = await files.http.get(f"/files/{file_id}/content")
    shutil.rmtree(files.folder / "files")
    away = await files.http.get(f"/files/{file_id}/content")

    assert (gone.status_code, gone.json()["code"]) == (410, "CONTENT_MISSING")
    assert (away.status_code, away.json()["code"]) == (503, "STORAGE_UNAVAILABLE")


CALLS = [
    ("GET", ""),
    ("GET", "/events"),
    ("GET", "/content"),
    ("PUT", "/content"),
    ("DELETE", ""),
    ("POST", "/retry"),
]


async def test_what_is_no_number_in_digits_is_never_taken_for_another_file(files: FilesServer) -> None:
    file_id = await files.upload()

    for method, path in CALLS:
        for written in (f"{file_id}.0", f"0_{file_id}", f"+{file_id}"):
            answer = await files.http.request(method, f"/files/{written}{path}")
            assert (answer.status_code, answer.json()["code"]) == (422, "INVALID_REQUEST"), (method, path, written)
    assert (await files.file(file_id))["status"] == "PENDING"


async def test_a_file_that_the_caller_does_not_have_is_not_found(files: FilesServer) -> None:
    foreign = await files.upload()
    await files.query("UPDATE module_files_file SET tenant_id = 'other'")

    for method, path in CALLS:
        for file_id in (foreign, 999, 0, -1, 2**31, 2**63 - 1, 2**63, 10**30):
            answer = await files.http.request(method, f"/files/{file_id}{path}")
            assert (answer.status_code, answer.json()["code"]) == (404, "FILE_NOT_FOUND"), (method, path, file_id)
    assert (await files.http.get("/files")).json()["files"] == []
    assert len(files.objects()) == 1


async def test_what_is_no_number_is_refused(files: FilesServer) -> None:
    for method, path in CALLS:
        answer = await files.http.request(method, f"/files/a{path}")
        assert (answer.status_code, answer.json()["code"]) == (422, "INVALID_REQUEST"), (method, path)
    for query in ("limit=0", "limit=1001", "limit=x", "after=0", f"after={2**63}", "after=", "colour=red", "Limit=2"):
        answer = await files.http.get(f"/files?{query}")
        assert (answer.status_code, answer.json()["code"]) == (422, "INVALID_REQUEST"), query
        assert answer.json()["where"].startswith("query."), query


async def test_without_a_tenant_every_request_is_refused(database: Database, tmp_path: Path) -> None:
    async with running_files(database, tmp_path / "objects", tenant=None) as files:
        for method, path in [*((method, f"/1{path}") for method, path in CALLS), ("GET", ""), ("POST", "")]:
            answer = await files.http.request(method, f"/files{path}")
            assert (answer.status_code, answer.json()["code"]) == (403, "SCOPE_MISSING")


async def test_files_are_listed_newest_first_a_page_at_a_time(files: FilesServer) -> None:
    ids = [await files.register(f"{number}.txt") for number in range(5)]

    first = (await files.http.get("/files", params={"limit": 2})).json()
    second = (await files.http.get("/files", params={"limit": 2, "after": first["next"]})).json()
    third = (await files.http.get("/files", params={"limit": 2, "after": second["next"]})).json()

    assert [file["file_id"] for page in (first, second, third) for file in page["files"]] == ids[::-1]
    assert third["next"] is None
    exact = (await files.http.get("/files", params={"limit": 5})).json()
    assert exact["next"] is None


async def test_a_deleted_file_is_gone_and_announced(files: FilesServer) -> None:
    file_id = await files.upload()

    answer = await files.http.delete(f"/files/{file_id}")

    assert (answer.status_code, answer.content) == (204, b"")
    assert (await files.http.get(f"/files/{file_id}")).status_code == 404
    assert (await files.http.delete(f"/files/{file_id}")).status_code == 404
    payload = {"id": file_id, "name": "a.txt", "tenant": TENANT}
    assert await files.events() == [("FileUploaded", payload), ("FileDeleted", payload)]
    [garbage] = await files.query("SELECT storage_key, delete_after > now() AS later FROM module_files_garbage")
    assert (files.objects(), garbage["later"]) == ([garbage["storage_key"]], True)


async def test_a_file_is_deleted_in_any_state(files: FilesServer) -> None:
    uploading = await files.register()
    failed = await files.register()
    await files.query(
        "UPDATE module_files_file SET state = 'FAILED', error_code = 'X', upload_deadline = NULL WHERE id = $1", failed
    )
    processed = await files.upload()
    await files.process(processed, "COMPLETED", revision=1)

    for file_id in (uploading, failed, processed):
        assert (await files.http.delete(f"/files/{file_id}")).status_code == 204


async def test_new_bytes_replace_the_old_ones_under_a_new_revision(files: FilesServer) -> None:
    file_id = await files.upload(b"old")
    await files.process(file_id, "COMPLETED", revision=1, page_count=3)
    [old] = files.objects()

    answer = await files.http.put(f"/files/{file_id}/content", content=b"newer")

    body = answer.json()
    assert (body["status"], body["revision"], body["size_bytes"], body["chunks"]) == ("PENDING", 2, 5, None)
    assert (await files.http.get(f"/files/{file_id}/content")).content == b"newer"
    assert [name for name, _ in await files.events()] == ["FileUploaded", "FileUploaded"]
    assert old in files.objects()
    [garbage] = await files.query("SELECT storage_key FROM module_files_garbage")
    assert garbage["storage_key"] == old


@pytest.mark.parametrize("end", [{"status": "COMPLETED"}, {"status": "FAILED", "error_code": "CORRUPT"}])
async def test_a_file_that_ended_is_processed_again_at_request(files: FilesServer, end: dict[str, str]) -> None:
    file_id = await files.upload()
    await files.process(file_id, revision=1, **end)

    answer = await files.http.post(f"/files/{file_id}/retry")

    assert answer.status_code == 202
    body = answer.json()
    assert (body["status"], body["revision"], body["error_code"], body["outcome"]) == ("PENDING", 2, None, None)
    assert [name for name, _ in await files.events()] == ["FileUploaded", "FileUploaded"]
    assert (await files.http.post(f"/files/{file_id}/retry")).json()["code"] == "NOT_FINISHED"
    assert len(await files.events()) == 2


async def test_a_file_that_has_not_ended_or_has_no_bytes_is_not_processed_again(files: FilesServer) -> None:
    uploading = await files.register()
    failed = await files.register()
    await files.query(
        "UPDATE module_files_file SET state = 'FAILED', error_code = 'UPLOAD_INCOMPLETE', upload_deadline = NULL"
        " WHERE id = $1",
        failed,
    )
    pending = await files.upload()

    for file_id, code in ((uploading, "UPLOAD_IN_PROGRESS"), (failed, "UPLOAD_INCOMPLETE"), (pending, "NOT_FINISHED")):
        answer = await files.http.post(f"/files/{file_id}/retry")
        assert (answer.status_code, answer.json()["code"]) == (409, code)
    for file_id, code in ((uploading, "UPLOAD_IN_PROGRESS"), (failed, "UPLOAD_INCOMPLETE")):
        answer = await files.http.get(f"/files/{file_id}/content")
        assert (answer.status_code, answer.json()["code"]) == (409, code)


async def test_status_follows_the_processing_of_the_present_bytes(files: FilesServer) -> None:
    file_id = await files.upload()
    lease = {"lease_token": "0190163d-8694-739b-aea5-966c26f8ad90", "stage": "EMBEDDING"}

    await files.process(file_id, "PENDING", revision=0)
    assert (await files.file(file_id))["status"] == "PENDING"
    await files.query(
        "UPDATE module_embeddings_files_file SET status = 'PROCESSING', lease_token = $1, stage = $2,"
        " lease_expires_at = now(), progress_done = 3, progress_total = 7, attempts = 2",
        *lease.values(),
    )
    working = await files.file(file_id)
    assert (working["status"], working["stage"], working["attempts"]) == ("PROCESSING", "EMBEDDING", 2)
    assert working["progress"] == {"done": 3, "total": 7}
    assert working["finished_at"] is None
    await files.query(
        "UPDATE module_embeddings_files_file SET lease_token = NULL, lease_expires_at = NULL, status = 'PENDING'"
    )
    await files.process(
        file_id,
        "COMPLETED",
        revision=1,
        media_type="text/html",
        page_count=4,
        outcome="EMPTY",
        outcome_reason="NO_TEXT",
    )
    done = await files.file(file_id)
    assert (done["status"], done["outcome"], done["outcome_reason"]) == ("COMPLETED", "EMPTY", "NO_TEXT")
    assert (done["pages"], done["media_type"]) == (4, "text/html")
    await files.process(file_id, "FAILED", revision=1, error_code="ENCRYPTED", error_message="a password is needed")
    failed = await files.file(file_id)
    assert (failed["status"], failed["error_code"]) == ("FAILED", "ENCRYPTED")
    assert failed["error_message"] == "a password is needed"
