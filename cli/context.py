"""``cauce context``: what to quote in a prompt, within a budget of tokens."""

from __future__ import annotations

from typing import Annotated

import typer

from cli.client import Answer, CauceClient
from cli.command import AsJson, DataDir, Mode, Url, run
from cli.filters import (
    CreatedBefore,
    CreatedFrom,
    EntityIds,
    FileIds,
    Languages,
    MediaTypes,
    MinScore,
    Types,
    UpdatedBefore,
    UpdatedFrom,
    file_filters,
    resource_filters,
)
from cli.render import Screen, printable
from cli.search import note_legs
from cli.techniques import History, Hyde, MultiQuery, Rerank, note_techniques, technique_parameters


def context(
    query: Annotated[str, typer.Argument(help="A question or a few words, in any language.", show_default=False)],
    *,
    budget: Annotated[
        int | None, typer.Option("--budget", metavar="TOKENS", help="The most tokens; the service's default without.")
    ] = None,
    chunks_per_file: Annotated[
        int | None, typer.Option("--chunks-per-file", metavar="N", help="The most chunks of one file.")
    ] = None,
    min_score: MinScore = None,
    mode: Mode = None,
    history: History = None,
    multi_query: MultiQuery = None,
    hyde: Hyde = False,
    rerank: Rerank = None,
    file_ids: FileIds = None,
    media_types: MediaTypes = None,
    languages: Languages = None,
    created_from: CreatedFrom = None,
    created_before: CreatedBefore = None,
    types: Types = None,
    entity_ids: EntityIds = None,
    updated_from: UpdatedFrom = None,
    updated_before: UpdatedBefore = None,
    url: Url = None,
    data_dir: DataDir = None,
    as_json: AsJson = False,
) -> None:
    """Print passages and resources to quote in a prompt, nearest first, with their sources."""
    parameters = {
        "budget": budget,
        "chunksPerFile": chunks_per_file,
        "minScore": min_score,
        "mode": mode,
        **resource_filters(types, entity_ids, languages, updated_from, updated_before),
        **file_filters(file_ids, media_types, languages, created_from, created_before),
        **technique_parameters(history, multi_query, hyde, rerank),
    }

    async def work(client: CauceClient, screen: Screen) -> bool:
        answer = await client.context(query, parameters)
        screen.tell(answer, show_context)
        return True

    run(work, url=url, data_dir=data_dir, as_json=as_json)


def show_context(screen: Screen, answer: Answer) -> None:
    """Print the text for the prompt; what was left out is a note."""
    executed = answer["executed"]
    passages, resources = executed["passages"], executed["resources"]
    for found in (passages, resources):
        note_legs(screen, {"executed": found})
    reports = executed["techniques"] + passages["techniques"] + resources["techniques"]
    note_techniques(screen, {"queries": passages["queries"], "techniques": reports})
    if answer["text"]:
        screen.say(printable(answer["text"], keep="\n\t"))
    left_out = ", ".join(f"{count} {reason.replace('_', ' ')}" for reason, count in answer["left_out"].items() if count)
    screen.note(f"{answer['tokens']} of {answer['budget']} tokens" + (f"; left out: {left_out}" if left_out else ""))
