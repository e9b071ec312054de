"""One suite over every object storage: a local folder, a store in memory, and S3 on a real HTTP server of its API.

For GCS and Azure only the construction is proved: no server of their API that obstore can write to comes as a package.
"""

from __future__ import annotations

import asyncio
import os
import resource
from collections.abc import AsyncIterator, Iterator
from hashlib import sha256
from pathlib import Path

import boto3
import pytest
from moto.server import ThreadedMotoServer
from obstore.store import MemoryStore

from services.chassis.kernel.errors import ConfigurationError, GoneError, UnavailableError
from services.files.adapters.storage import PART_BYTES, ObstoreStorage, open_storage

BUCKET = "cauce-test"


class BrokenBodyError(Exception):
    """What a body raises."""


@pytest.fixture(scope="module")
def s3() -> Iterator[str]:
    """The address of an S3 server with a bucket."""
    server = ThreadedMotoServer("127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    endpoint = f"http://{host}:{port}"
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv("AWS_ACCESS_KEY_ID", "test")
        environment.setenv("AWS_SECRET_ACCESS_KEY", "test")
        environment.setenv("AWS_REGION", "us-east-1")
        environment.setenv("AWS_ENDPOINT_URL", endpoint)
        environment.setenv("AWS_ALLOW_HTTP", "true")
        boto3.client("s3", endpoint_url=endpoint, region_name="us-east-1").create_bucket(Bucket=BUCKET)
        yield endpoint
    server.stop()


@pytest.fixture(params=["local", "memory", "s3"])
def storage(request: pytest.FixtureRequest, tmp_path: Path) -> ObstoreStorage:
    if request.param == "local":
        return open_storage((tmp_path / "not yet made" / "objects").as_uri())
    if request.param == "memory":
        return ObstoreStorage(MemoryStore())
    request.getfixturevalue("s3")
    return open_storage(f"s3://{BUCKET}/{tmp_path.name}")


async def body_of(*chunks: bytes, fault: Exception | None = None) -> AsyncIterator[bytes]:
    for chunk in chunks:
        yield chunk
    if fault is not None:
        raise fault


async def content(storage: ObstoreStorage, key: str) -> bytes:
    return b"".join([piece async for piece in await storage.open(key)])


@pytest.mark.parametrize("size", [0, 1, PART_BYTES - 1, PART_BYTES, 2 * PART_BYTES + 7])
async def test_bytes_come_back_as_they_were_written(storage: ObstoreStorage, size: int) -> None:
    data = (b"0123456789abcdef" * (size // 16 + 1))[:size]
    step = 1_000_003

    await storage.write("files/ab/key", body_of(*(data[start : start + step] for start in range(0, size, step))))

    assert sha256(await content(storage, "files/ab/key")).digest() == sha256(data).digest()


async def test_a_written_object_replaces_an_older_one(storage: ObstoreStorage) -> None:
    await storage.write("files/ab/key", body_of(b"old and long"))
    await storage.write("files/ab/key", body_of(b"new"))

    assert await content(storage, "files/ab/key") == b"new"


@pytest.mark.parametrize("size", [10, PART_BYTES + 10])
async def test_a_body_that_raises_leaves_no_object(storage: ObstoreStorage, size: int) -> None:
    with pytest.raises(BrokenBodyError):
        await storage.write("files/ab/key", body_of(b"x" * size, fault=BrokenBodyError()))

    with pytest.raises((GoneError, UnavailableError)):
        await storage.open("files/ab/key")


async def test_a_cancelled_write_leaves_no_object(storage: ObstoreStorage) -> None:
    reached = asyncio.Event()

    async def endless() -> AsyncIterator[bytes]:
        yield b"x" * (PART_BYTES + 10)
        reached.set()
        await asyncio.Event().wait()

    writing = asyncio.create_task(storage.write("files/ab/key", endless()))
    await reached.wait()
    writing.cancel()
    with pytest.raises(asyncio.CancelledError):
        await writing

    with pytest.raises((GoneError, UnavailableError)):
        await storage.open("files/ab/key")


async def test_faults_of_the_body_are_not_taken_for_faults_of_storage(storage: ObstoreStorage) -> None:
    with pytest.raises(ConnectionResetError):
        await storage.write("files/ab/key", body_of(b"x", fault=ConnectionResetError()))


async def test_a_deleted_object_is_gone_and_deleting_it_again_is_no_fault(storage: ObstoreStorage) -> None:
    await storage.write("files/ab/key", body_of(b"x"))

    await storage.delete("files/ab/key")
    await storage.delete("files/ab/key")
    await storage.delete("files/ab/never-written")

    await storage.write("files/ab/another", body_of(b"x"))
    with pytest.raises(GoneError) as caught:
        await storage.open("files/ab/key")
    assert caught.value.code == "CONTENT_MISSING"


async def test_of_a_storage_without_any_file_none_is_gone_for_good(storage: ObstoreStorage) -> None:
    await storage.check()

    with pytest.raises(UnavailableError) as caught:
        await storage.open("files/ab/key")
    assert caught.value.code == "STORAGE_UNAVAILABLE"


async def test_storage_that_takes_names_and_no_bytes_fails_its_check(tmp_path: Path) -> None:
    storage = open_storage(tmp_path.as_uri())
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4096, before[1]))
    try:
        with pytest.raises(UnavailableError) as caught:
            await storage.check()
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert caught.value.code == "STORAGE_UNAVAILABLE"
    await storage.check()


async def test_storage_that_works_passes_its_check(storage: ObstoreStorage) -> None:
    await storage.check()


async def test_a_failed_write_leaves_no_parts_on_s3(s3: str) -> None:
    storage = open_storage(f"s3://{BUCKET}/parts")
    with pytest.raises(BrokenBodyError):
        await storage.write("key", body_of(b"x" * (3 * PART_BYTES), fault=BrokenBodyError()))

    uploads = boto3.client("s3", endpoint_url=s3).list_multipart_uploads(Bucket=BUCKET, Prefix="parts")
    assert "Uploads" not in uploads


async def test_a_large_object_is_sent_to_s3_in_parts(s3: str) -> None:
    storage = open_storage(f"s3://{BUCKET}/parts")
    await storage.write("key", body_of(*[b"x" * 1_000_000] * 12))

    head = boto3.client("s3", endpoint_url=s3).head_object(Bucket=BUCKET, Key="parts/key")
    assert head["ContentLength"] == 12_000_000
    assert head["ETag"].strip('"').endswith("-3")


async def test_a_bucket_that_is_not_there_is_a_fault(s3: str) -> None:
    storage = open_storage("s3://no-such-bucket")

    with pytest.raises(UnavailableError):
        await storage.check()
    with pytest.raises(UnavailableError):
        await storage.write("key", body_of(b"x"))
    with pytest.raises(UnavailableError):
        await storage.open("key")


async def test_a_local_object_is_deleted_with_what_a_killed_write_left(tmp_path: Path) -> None:
    storage = open_storage(tmp_path.as_uri())
    (tmp_path / "files").mkdir()
    for name in ("key#1", "key#12", "another#1"):
        (tmp_path / "files" / name).write_bytes(b"half")

    await storage.delete("files/key")

    assert [path.name for path in (tmp_path / "files").iterdir()] == ["another#1"]


async def test_a_local_folder_that_vanished_is_a_fault(tmp_path: Path) -> None:
    folder = tmp_path / "objects"
    storage = open_storage(folder.as_uri())
    folder.rmdir()
    folder.touch()

    for call in (storage.check(), storage.write("k", body_of(b"x")), storage.open("k"), storage.delete("k")):
        with pytest.raises(UnavailableError):
            await call


@pytest.mark.parametrize(
    "url", ["", "objects", "ftp://host/x", "file:///proc/none/x", "az://", "s3://", "http://[", "gs://"]
)
def test_an_address_that_cannot_be_used_is_refused(url: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        open_storage(url)
    assert caught.value.where == "CAUCE_STORAGE_URL"


def test_gcs_and_azure_can_be_constructed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AZURE_STORAGE_ACCOUNT_NAME", "account")
    monkeypatch.setenv("AZURE_STORAGE_ACCOUNT_KEY", "a2V5")

    open_storage("gs://bucket/prefix")
    open_storage("az://container/prefix")
    assert "GOOGLE_APPLICATION_CREDENTIALS" not in os.environ
