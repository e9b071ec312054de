"""``make generate``: writes what ``contracts/`` publishes. Nothing is opened or started for it.

The events' schemas, examples and AsyncAPI document follow from ``contracts.events`` and the declared types of
resources; the OpenAPI documents are those of the services' applications.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from contracts.events.documents import asyncapi, example, headers_schema, payload_schema, published_events
from services.chassis.models.model_settings import ModelSettings
from services.chassis.resource_types import load_resource_types
from services.embeddings import bootstrap as embeddings
from services.embeddings.settings import EmbeddingsSettings
from services.files import bootstrap as files
from services.files.settings import FilesSettings
from services.search import bootstrap as search
from services.search.settings import SearchSettings

CONTRACTS = Path(__file__).parents[1] / "contracts"
COMMAND = "make generate"

# Addresses of nothing: what an application needs is opened by its lifespan or when it is used, never by its making.
_NO_DATABASE = "postgresql://nobody@localhost:1/none"
_NO_BUCKET = "s3://none"


def documents() -> dict[Path, str]:
    """The text of every generated file, by its path below ``contracts/``."""
    return {Path(path): json.dumps(content, ensure_ascii=False, indent=2) + "\n" for path, content in _contents()}


def _contents() -> Iterator[tuple[str, dict[str, Any]]]:
    events = published_events(load_resource_types())
    yield "events/schemas/payload.json", payload_schema()
    yield "events/schemas/headers.json", headers_schema()
    for event in events:
        yield f"events/examples/{event.type}.json", example(event)
    yield "asyncapi/cauce.json", asyncapi(events)
    files_settings = FilesSettings(files_database_url=_NO_DATABASE, storage_url=_NO_BUCKET)
    yield "openapi/files.json", files.build_app(files_settings).openapi()
    embeddings_settings = EmbeddingsSettings(embeddings_database_url=_NO_DATABASE, storage_url=_NO_BUCKET)
    yield "openapi/embeddings.json", embeddings.build_app(embeddings_settings).openapi()
    search_settings = SearchSettings(search_database_url=_NO_DATABASE)
    yield "openapi/search.json", search.build_app(search_settings, ModelSettings()).openapi()


def stale(folder: Path = CONTRACTS) -> list[str]:
    """The generated files below ``folder`` that are missing, differ, or should not be there."""
    wanted = documents()
    differing = [path for path, text in wanted.items() if _read(folder / path) != text]
    return sorted(str(path) for path in [*differing, *_left_over(folder, wanted)])


def write(folder: Path = CONTRACTS) -> list[str]:
    """Make the generated files below ``folder`` what they should be. Return those that were not."""
    wanted = documents()
    changed = stale(folder)
    for path in _left_over(folder, wanted):
        (folder / path).unlink()
    for path, text in wanted.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text(text, encoding="utf-8")
    return changed


def _left_over(folder: Path, wanted: dict[Path, str]) -> list[Path]:
    """JSON files beside the generated ones that nothing generates any more."""
    beside = {path.relative_to(folder) for parent in wanted for path in (folder / parent).parent.glob("*.json")}
    return sorted(beside - set(wanted))


def _read(path: Path) -> str | None:
    return path.read_text(encoding="utf-8") if path.is_file() else None


def main() -> None:
    """Write, and say what changed."""
    for path in write():
        sys.stdout.write(f"{path}\n")


if __name__ == "__main__":
    main()
