"""``cauce resources``: the catalogue, one resource at a time or a file of them, and search over it."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, TypeAlias

import typer

from cli.client import Answer, CauceClient
from cli.command import AsJson, DataDir, Mode, Url, run
from cli.errors import CommandError
from cli.filters import After, EntityIds, Languages, MinScore, TopN, Types, UpdatedBefore, UpdatedFrom, resource_filters
from cli.render import Screen, printable
from cli.search import note_legs, note_total, score_of
from cli.techniques import History, Hyde, MultiQuery, Rerank, note_techniques, technique_parameters

Type: TypeAlias = Annotated[
    str,
    typer.Argument(metavar="TYPE", help="The type; to an unknown one the known are told.", show_default=False),
]
Id: TypeAlias = Annotated[int, typer.Argument(metavar="ID", help="The id that its source gave it.", show_default=False)]

resources = typer.Typer(name="resources", help="The catalogue of resources.", no_args_is_help=True)


@resources.command()
def put(
    type_: Type,
    resource_id: Id,
    *,
    name: Annotated[str | None, typer.Option("--name", help="Its name; the type and the id without it.")] = None,
    fields: Annotated[
        list[str] | None,
        typer.Option("--field", metavar="FIELD=VALUE", help="A field; the value is JSON, or text as it stands."),
    ] = None,
    json_file: Annotated[
        Path | None, typer.Option("--json-file", metavar="FILE", help="The whole definition, as a JSON object.")
    ] = None,
    url: Url = None,
    data_dir: DataDir = None,
    as_json: AsJson = False,
) -> None:
    """Define a resource anew: a field that is not given is emptied."""

    async def work(client: CauceClient, screen: Screen) -> bool:
        definition = _definition(name, fields or (), json_file)
        screen.file(await client.put_resource(type_, resource_id, definition))
        return True

    run(work, url=url, data_dir=data_dir, as_json=as_json)


@resources.command()
def get(type_: Type, resource_id: Id, url: Url = None, data_dir: DataDir = None, as_json: AsJson = False) -> None:
    """Print a resource."""

    async def work(client: CauceClient, screen: Screen) -> bool:
        screen.file(await client.resource(type_, resource_id))
        return True

    run(work, url=url, data_dir=data_dir, as_json=as_json)


@resources.command()
def delete(type_: Type, resource_id: Id, url: Url = None, data_dir: DataDir = None, as_json: AsJson = False) -> None:
    """Delete a resource, and what was made of it."""

    async def work(client: CauceClient, screen: Screen) -> bool:
        await client.delete_resource(type_, resource_id)
        screen.confirm({"type": type_, "id": resource_id, "deleted": True}, f"deleted {type_} {resource_id}")
        return True

    run(work, url=url, data_dir=data_dir, as_json=as_json)


@resources.command()
def retry(type_: Type, resource_id: Id, url: Url = None, data_dir: DataDir = None, as_json: AsJson = False) -> None:
    """Have a resource looked at again: what failed is embedded, a text that has its vector keeps it."""

    async def work(client: CauceClient, screen: Screen) -> bool:
        await client.retry_resource(type_, resource_id)
        screen.confirm({"type": type_, "id": resource_id, "announced": True}, f"announced {type_} {resource_id} again")
        return True

    run(work, url=url, data_dir=data_dir, as_json=as_json)


@resources.command("list")
def list_(type_: Type, url: Url = None, data_dir: DataDir = None, as_json: AsJson = False) -> None:
    """Print the resources of a type in order of id, one a line."""

    async def work(client: CauceClient, screen: Screen) -> bool:
        async for resource in client.resources(type_):
            if as_json:
                screen.record(resource)
            else:
                screen.row(str(resource["id"]), printable(resource["name"]))
        return True

    run(work, url=url, data_dir=data_dir, as_json=as_json)


@resources.command("import")
def import_(
    type_: Type,
    path: Annotated[
        Path, typer.Argument(metavar="FILE.jsonl", help="A JSON object a line: id, name, fields.", show_default=False)
    ],
    url: Url = None,
    data_dir: DataDir = None,
    as_json: AsJson = False,
) -> None:
    """Put every resource of a file; {"id": 1, "deleted": true} deletes. Bad lines are reported, the others go on."""

    async def work(client: CauceClient, screen: Screen) -> bool:
        try:
            report = await client.import_resources(type_, path)
        except OSError as fault:
            raise CommandError("UNREADABLE", fault.strerror or str(fault), where=str(path)) from fault
        screen.tell(report, show_report)
        return not report["failed"]

    run(work, url=url, data_dir=data_dir, as_json=as_json)


@resources.command()
def search(
    query: Annotated[str, typer.Argument(help="A question or a few words, in any language.", show_default=False)],
    *,
    types: Types = None,
    entity_ids: EntityIds = None,
    languages: Languages = None,
    updated_from: UpdatedFrom = None,
    updated_before: UpdatedBefore = None,
    top_n: TopN = None,
    min_score: MinScore = None,
    after: After = None,
    mode: Mode = None,
    history: History = None,
    multi_query: MultiQuery = None,
    hyde: Hyde = False,
    rerank: Rerank = None,
    url: Url = None,
    data_dir: DataDir = None,
    as_json: AsJson = False,
) -> None:
    """Print the resources that mean or say what is asked for, best first."""
    filters = resource_filters(types, entity_ids, languages, updated_from, updated_before)
    techniques = technique_parameters(history, multi_query, hyde, rerank)
    parameters = {"topN": top_n, "minScore": min_score, "mode": mode, "after": after, **filters, **techniques}

    async def work(client: CauceClient, screen: Screen) -> bool:
        answer = await client.search_resources(query, parameters)
        screen.tell(answer, show_results)
        return True

    run(work, url=url, data_dir=data_dir, as_json=as_json)


def show_report(screen: Screen, report: Answer) -> None:
    """Print what became of an import: a line for each bad row, then the counts."""
    for error in report["errors"]:
        resource = "" if error["id"] is None else f", id {error['id']}"
        where = "" if error["where"] is None else f" ({error['where']})"
        screen.say(printable(f"line {error['line']}{resource}: {error['code']}: {error['detail']}{where}"))
    if report["errors_not_listed"]:
        screen.say(f"and {report['errors_not_listed']} more")
    counts = ("created", "updated", "unchanged", "deleted", "failed")
    screen.say(", ".join(f"{report[count]} {count}" for count in counts))


def show_results(screen: Screen, answer: Answer) -> None:
    """Print the resources that a search found."""
    note_legs(screen, answer)
    note_techniques(screen, answer["executed"])
    if not answer["results"]:
        screen.note("no resource found")
    for rank, found in enumerate(answer["results"], start=1):
        where = f"{found['entity_type']} {found['entity_id']}"
        screen.passage(f"{rank}. {found['name']}, {score_of(found)}", where, found["embedding_text"])
    note_total(screen, answer)


def _definition(name: str | None, fields: Sequence[str], json_file: Path | None) -> dict[str, Any]:
    if json_file is not None and (fields or name is not None):
        raise CommandError(
            "CONTRADICTORY_OPTIONS", "the file is the whole definition", remedy="leave --name and --field out"
        )
    if json_file is not None:
        return _read(json_file)
    definition: dict[str, Any] = {} if name is None else {"name": name}
    for field in fields:
        key, equals, value = field.partition("=")
        if not equals or key in definition:
            raise CommandError("INVALID_OPTION", "give each field once, as FIELD=VALUE", where=f"--field {field}")
        definition[key] = _value(value)
    return definition


def _value(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text


def _read(path: Path) -> dict[str, Any]:
    try:
        definition = json.loads(path.read_bytes())
    except OSError as fault:
        raise CommandError("UNREADABLE", fault.strerror or str(fault), where=str(path)) from fault
    except (ValueError, RecursionError) as fault:
        raise CommandError("INVALID_JSON", f"the file is not JSON: {fault}", where=str(path)) from fault
    if not isinstance(definition, dict):
        raise CommandError("INVALID_JSON", "the file is not a JSON object", where=str(path))
    return definition
