"""Finds the stack.

In this order: ``--url`` (any service: each knows the others), ``--data-dir``, the ``CAUCE_*_URL`` of each service,
``CAUCE_URL`` (any service again), and the ``stack.json`` that ``cauce up`` leaves in the data folder.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx2

from cli.errors import CommandError
from cli.settings import CommandSettings

STACK_FILE = "stack.json"
REMEDY = (
    "start one with `cauce up`, or say where one is: --url, --data-dir, CAUCE_URL, CAUCE_FILES_URL and CAUCE_SEARCH_URL"
)


@dataclass(frozen=True, slots=True)
class Addresses:
    """Base addresses of the services that the command calls. Few commands need the embeddings service."""

    files_url: str
    search_url: str
    embeddings_url: str | None = None


async def find_addresses(
    http: httpx2.AsyncClient, settings: CommandSettings, *, url: str | None = None, data_dir: Path | None = None
) -> Addresses:
    """Find the stack; ``url`` and ``data_dir`` are what the caller said, and win.

    Raises:
        CommandError: ``STACK_NOT_FOUND``, saying what to do.
    """
    if url is not None:
        return await _ask(http, url)
    if data_dir is not None:
        return _read(data_dir)
    if settings.files_url and settings.search_url:
        return Addresses(settings.files_url, settings.search_url, settings.embeddings_url)
    any_url = settings.url or settings.files_url or settings.search_url or settings.embeddings_url
    if any_url is None:
        return _read(settings.data_dir)
    answer = await _ask(http, any_url)
    return Addresses(
        settings.files_url or answer.files_url,
        settings.search_url or answer.search_url,
        settings.embeddings_url or answer.embeddings_url,
    )


async def _ask(http: httpx2.AsyncClient, url: str) -> Addresses:
    try:
        response = await http.get(f"{url.rstrip('/')}/")
        answer = response.raise_for_status().json()
    except (httpx2.HTTPError, httpx2.InvalidURL, ValueError) as fault:
        raise CommandError(
            "STACK_NOT_FOUND", f"no service of Cauce answers: {fault or type(fault).__name__}", where=url, remedy=REMEDY
        ) from fault
    return _addresses(answer, url)


def _read(data_dir: Path) -> Addresses:
    path = data_dir / STACK_FILE
    try:
        return _addresses(json.loads(path.read_bytes()), str(path))
    except (OSError, ValueError) as fault:
        raise CommandError("STACK_NOT_FOUND", "no stack has run here", where=str(path), remedy=REMEDY) from fault


def _addresses(answer: Any, where: str) -> Addresses:
    known: Mapping[str, Any] = answer if isinstance(answer, dict) else {}
    files_url, search_url = known.get("files_url"), known.get("search_url")
    # A stack that was stopped leaves its folder without addresses.
    if not isinstance(files_url, str) or not isinstance(search_url, str):
        raise CommandError("STACK_NOT_FOUND", "no stack is told of here", where=where, remedy=REMEDY)
    embeddings_url = known.get("embeddings_url")
    return Addresses(files_url, search_url, embeddings_url if isinstance(embeddings_url, str) else None)
