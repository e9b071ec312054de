"""The options that let a language model work on a question, and what they are on the wire."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, TypeAlias

import typer

from cli.render import Screen

History: TypeAlias = Annotated[
    list[str] | None,
    typer.Option("--history", metavar="TEXT", help="What was asked before, oldest first; give it again for more."),
]
MultiQuery: TypeAlias = Annotated[
    int | None, typer.Option("--multi-query", metavar="N", help="Search for N other wordings as well, 1 to 5.")
]
Hyde: TypeAlias = Annotated[
    bool, typer.Option("--hyde", help="Look near a hypothetical passage that answers the question as well.")
]
Rerank: TypeAlias = Annotated[
    int | None, typer.Option("--rerank", metavar="N", help="Have a language model order the first N, 2 to 50.")
]


def technique_parameters(
    history: Sequence[str] | None, multi_query: int | None, hyde: bool, rerank: int | None
) -> Mapping[str, object]:
    """The parameters; those that are not given are None."""
    return {
        "rewrite": {"history": [{"text": text} for text in history]} if history else None,
        "multiQuery": multi_query,
        "hyde": hyde or None,
        "rerank": rerank,
    }


def note_techniques(screen: Screen, executed: Mapping[str, Any]) -> None:
    """Say what was searched for besides the question, and which technique did not run and why."""
    for query in executed["queries"]:
        if query["kind"] != "question":
            screen.note(f"{query['kind']}: {query['text']}")
    for report in executed["techniques"]:
        if report["status"] != "RAN" or report["reason"] is not None:
            name = report["name"].replace("_", " ")
            screen.note(f"{name} {report['status'].lower()}: {report['reason']}")
