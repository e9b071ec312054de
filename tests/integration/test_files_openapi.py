"""Requests generated from the service's own OpenAPI document: no answer is a server error or outside the document."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import response_schema_conformance, status_code_conformance

from tests.support.files import PATIENCE, FilesServer, running_files
from tests.support.postgres import Database

EXAMPLES = 8
CHECKS = [not_a_server_error, status_code_conformance, response_schema_conformance]


@pytest.fixture
async def files(database: Database, tmp_path: Path) -> AsyncIterator[FilesServer]:
    async with running_files(database, tmp_path / "objects") as server:
        yield server


def call_every_operation(url: str) -> list[str]:
    """Call each operation with a few valid and invalid requests. Return what was called."""
    # An open stream has no end to wait for; its refusals are tested by hand.
    document = schemathesis.openapi.from_url(f"{url}/openapi.json")
    schema = document.include(path_regex="^/files").exclude(path_regex="/events$")
    called = []
    for result in schema.get_all_operations():
        operation = result.ok()
        modes = schemathesis.GenerationMode

        @settings(
            max_examples=EXAMPLES,
            deadline=None,
            database=None,
            derandomize=True,
            phases=[Phase.explicit, Phase.generate],
            suppress_health_check=list(HealthCheck),
        )
        @given(
            case=st.one_of(
                operation.as_strategy(generation_mode=modes.POSITIVE),
                operation.as_strategy(generation_mode=modes.NEGATIVE),
            )
        )
        def call(case: schemathesis.Case) -> None:
            case.call_and_validate(checks=CHECKS, timeout=PATIENCE)

        call()
        called.append(operation.label)
    return called


async def test_no_generated_request_meets_a_server_error(files: FilesServer) -> None:
    await files.upload()

    called = await asyncio.to_thread(call_every_operation, files.url)

    assert set(called) == {
        "POST /files",
        "GET /files",
        "GET /files/{file_id}",
        "DELETE /files/{file_id}",
        "PUT /files/{file_id}/content",
        "GET /files/{file_id}/content",
        "POST /files/{file_id}/retry",
        "GET /files/{file_id}/pages/{number}.png",
        "GET /files/{file_id}/chunks/{chunk_id}/highlight",
    }
