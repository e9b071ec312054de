"""``cauce search`` and ``cauce chunks``: passages by meaning and words, and passages by page."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

import typer

from cli.client import Answer, CauceClient
from cli.command import AsJson, DataDir, FileId, Mode, Url, run
from cli.filters import After, CreatedBefore, CreatedFrom, FileIds, Languages, MediaTypes, MinScore, TopN, file_filters
from cli.render import Screen
from cli.techniques import History, Hyde, MultiQuery, Rerank, note_techniques, technique_parameters


def search(
    query: Annotated[str, typer.Argument(help="A question or a few words, in any language.", show_default=False)],
    *,
    top_n: TopN = None,
    min_score: MinScore = None,
    file_ids: FileIds = None,
    media_types: MediaTypes = None,
    languages: Languages = None,
    created_from: CreatedFrom = None,
    created_before: CreatedBefore = None,
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
    """Print the passages that mean or say what is asked for, best first."""
    filters = file_filters(file_ids, media_types, languages, created_from, created_before)
    techniques = technique_parameters(history, multi_query, hyde, rerank)
    parameters = {"topN": top_n, "minScore": min_score, "mode": mode, "after": after, **filters, **techniques}

    async def work(client: CauceClient, screen: Screen) -> bool:
        answer = await client.search(query, parameters)
        screen.tell(answer, show_results)
        return True

    run(work, url=url, data_dir=data_dir, as_json=as_json)


def chunks(
    file_id: FileId,
    pages: Annotated[str | None, typer.Option("--pages", help="Only these pages: 2, 2-5 or 1,3-4.")] = None,
    url: Url = None,
    data_dir: DataDir = None,
    as_json: AsJson = False,
) -> None:
    """Print the passages of a file in order: a read, not a search."""

    async def work(client: CauceClient, screen: Screen) -> bool:
        answer = await client.chunks(file_id, pages=pages)
        screen.tell(answer, show_chunks)
        return True

    run(work, url=url, data_dir=data_dir, as_json=as_json)


def show_results(screen: Screen, answer: Answer) -> None:
    """Print the passages that a search found."""
    note_legs(screen, answer)
    note_techniques(screen, answer["executed"])
    if not answer["results"]:
        screen.note("no passage found")
    for rank, passage in enumerate(answer["results"], start=1):
        source = source_of(passage["file_name"], passage)
        where = f"file {passage['file_id']}, position {passage['position']}"
        screen.passage(f"{rank}. {source}, {score_of(passage)}", where, passage["text"])
    note_total(screen, answer)


def show_chunks(screen: Screen, answer: Answer) -> None:
    """Print the passages of a file."""
    if not answer["chunks"]:
        screen.note("no passage there")
    for passage in answer["chunks"]:
        screen.passage(source_of(answer["file_name"], passage), f"position {passage['position']}", passage["text"])


def score_of(found: Mapping[str, Any]) -> str:
    """The cosine, or the BM25 score where there is no cosine."""
    if found["score"] is None:
        return f"words {found['bm25_score']:.2f}"
    return f"score {found['score']:.3f}"


def note_legs(screen: Screen, answer: Answer) -> None:
    """Say which half of the search did not run, or may have missed something, and why."""
    for name, leg in answer["executed"]["legs"].items():
        if leg is not None and leg["reason"] is not None:
            what = "incomplete" if leg["status"] == "RAN" else leg["status"].lower()
            screen.note(f"{name} search {what}: {leg['reason']}")


def note_total(screen: Screen, answer: Answer) -> None:
    """Say how many match when they are more than were printed."""
    total, shown = answer["total"], len(answer["results"])
    if total["count"] > shown:
        screen.note(f"{shown} of {total['count']}" if total["exact"] else f"{shown} of {total['count']} or more")


def source_of(file_name: str, passage: Mapping[str, Any]) -> str:
    """The file and the pages that a passage stands on."""
    page_from, page_to = passage["page_from"], passage["page_to"]
    if page_from is None:
        return file_name
    return f"{file_name}, page {page_from}" if page_from == page_to else f"{file_name}, pages {page_from}-{page_to}"
