"""The order in which the command line looks for the stack."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import httpx2
import pytest

from cli.addresses import Addresses, find_addresses
from cli.errors import CommandError
from cli.settings import CommandSettings

TOLD = Addresses("http://told/files", "http://told/search")


def answer(request: httpx2.Request) -> httpx2.Response:
    """A service at http://any; everything else is something else."""
    if request.url.host == "any":
        return httpx2.Response(200, json={"files_url": TOLD.files_url, "search_url": TOLD.search_url})
    return httpx2.Response(200, text="It works!")


async def found(settings: CommandSettings, *, url: str | None = None, data_dir: Path | None = None) -> Addresses:
    async with httpx2.AsyncClient(transport=httpx2.MockTransport(answer)) as http:
        return await find_addresses(http, settings, url=url, data_dir=data_dir)


def stack_in(folder: Path) -> Addresses:
    (folder / "stack.json").write_text(json.dumps({"files_url": "http://f", "search_url": "http://s", "port_base": 1}))
    return Addresses("http://f", "http://s")


async def test_an_address_that_is_said_wins_over_all(tmp_path: Path) -> None:
    stack_in(tmp_path)
    settings = CommandSettings(files_url="http://x", search_url="http://y", data_dir=tmp_path)
    assert await found(settings, url="http://any/", data_dir=tmp_path) == TOLD


async def test_a_folder_that_is_said_wins_over_the_environment(tmp_path: Path) -> None:
    expected = stack_in(tmp_path)
    assert await found(CommandSettings(url="http://any"), data_dir=tmp_path) == expected


async def test_the_address_of_each_service_is_taken_as_it_is() -> None:
    settings = CommandSettings(files_url="http://x", search_url="http://y", url="http://any")
    assert await found(settings) == Addresses("http://x", "http://y")


async def test_a_missing_address_is_asked_of_any_service() -> None:
    settings = CommandSettings(files_url="http://x", url="http://any")
    assert await found(settings) == Addresses("http://x", TOLD.search_url)
    assert await found(CommandSettings(embeddings_url="http://any")) == replace(TOLD, embeddings_url="http://any")


async def test_the_data_folder_is_the_last_resort(tmp_path: Path) -> None:
    expected = stack_in(tmp_path)
    assert await found(CommandSettings(data_dir=tmp_path)) == expected


def test_settings_come_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CAUCE_URL", "http://any")
    monkeypatch.setenv("CAUCE_DATA_DIR", "/srv/stack")
    assert CommandSettings() == CommandSettings(url="http://any", data_dir=Path("/srv/stack"))


@pytest.mark.parametrize("content", [None, "", "[]", '{"port_base": 20000}', '{"files_url": 1, "search_url": 2}'])
async def test_a_folder_where_no_stack_runs_is_a_clear_error(tmp_path: Path, content: str | None) -> None:
    if content is not None:
        (tmp_path / "stack.json").write_text(content)
    with pytest.raises(CommandError) as caught:
        await found(CommandSettings(data_dir=tmp_path))
    assert caught.value.code == "STACK_NOT_FOUND"
    assert str(tmp_path) in str(caught.value)
    assert "cauce up" in str(caught.value)


@pytest.mark.parametrize("url", ["http://127.0.0.1:9", "no-address", "http://[", ""])
async def test_an_address_without_a_service_is_a_clear_error(url: str) -> None:
    async with httpx2.AsyncClient() as http:
        with pytest.raises(CommandError, match="STACK_NOT_FOUND"):
            await find_addresses(http, CommandSettings(), url=url)


async def test_a_server_of_something_else_is_no_stack() -> None:
    with pytest.raises(CommandError, match="STACK_NOT_FOUND"):
        await found(CommandSettings(url="http://other"))
