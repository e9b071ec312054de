"""``make demo``: documents in, passages with their pages out, on this machine alone.

Starts the embedded stack as a child, ingests the samples, asks, shows what to see, and stops everything. Ends with
status 1 when a document or a passage is not what it must be.
"""

from __future__ import annotations

import argparse
import asyncio
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from rich.text import Text

from cli.addresses import Addresses
from cli.client import Answer, CauceClient, open_http
from cli.errors import CommandError
from cli.render import FileProgress, Screen, printable
from cli.search import score_of, source_of
from deploy.embedded.child import RunningStack, running_stack
from deploy.samples import DIAGRAM_PAGE, MANUAL, POLICY, SCAN, SHREDDING_PAGE, write_samples
from services.chassis.kernel.errors import UnavailableError

TOP_N = 3
READ_PAGES = (3, 4)
EXCERPT = 260
LOG_LINES = 15


class DemoError(Exception):
    """Something is not as it must be. ``role`` is the process whose log may tell why, if one was not shown yet."""

    def __init__(self, message: str, role: str | None = None) -> None:
        super().__init__(message)
        self.role = role


@dataclass(frozen=True, slots=True)
class Question:
    """A question, what it shows, and the passage that must be among the answers."""

    text: str
    shows: str
    file_name: str
    page: int
    phrase: str

    def is_answered_by(self, passage: Answer) -> bool:
        """The passage is of the file, covers the page and says the phrase."""
        return (
            passage["file_name"] == self.file_name
            and passage["page_from"] <= self.page <= passage["page_to"]
            and self.phrase in " ".join(passage["text"].split())
        )


QUESTIONS = (
    Question(
        "¿Cómo se destruyen los documentos en papel con datos personales?",
        "asked in Spanish, answered from a document in English",
        POLICY,
        SHREDDING_PAGE,
        "shredded on the premises",
    ),
    Question(
        "¿A qué presión abre la válvula de seguridad PSV-204?",
        "the answer stands only in a picture: no text of the manual holds it",
        MANUAL,
        DIAGRAM_PAGE,
        "11,5 bar",
    ),
    Question(
        "¿Por qué salía agua en las pistolas de pintura?",
        "the answer stands in a scan, a page that has no text at all",
        SCAN,
        1,
        "Membrana rota",
    ),
)


class Demo:
    """What is shown, on a stack that runs."""

    def __init__(self, client: CauceClient, screen: Screen) -> None:
        self._client = client
        self._screen = screen

    async def ingest(self, paths: list[Path]) -> dict[str, int]:
        """Send the documents at once and follow each to its end; the id of each by its name."""
        with self._screen.progress() as progress:
            files = await asyncio.gather(*(self._ingest(path, progress) for path in paths))
        return {file["name"]: file["file_id"] for file in files}

    async def _ingest(self, path: Path, progress: FileProgress) -> Answer:
        stage = None

        def show(file: Answer) -> None:
            nonlocal stage
            bar.show(file)
            previous, stage = stage, file["stage"] or file["status"]
            if stage != previous:
                self._screen.say(Text(f"  {path.name}: {stage.lower()}", "dim"))

        with progress.file(path.name) as bar:
            file = await self._client.create_file(path.name)
            await self._client.send_content(file["file_id"], path, bar.sent)
            file = await self._client.wait_for(file["file_id"], show)
        self._screen.line(file)
        if file["outcome"] != "INDEXED":
            raise DemoError(f"{path.name} did not become passages", "worker-1")
        return file

    async def ask(self, question: Question) -> None:
        """Search, show the best passages, and see that the right one is among them."""
        self._screen.say(Text(f"\n{question.text}", "bold cyan"))
        self._screen.say(f"What to see: {question.shows}.")
        answer = await self._client.search(question.text, {"topN": TOP_N})
        for rank, passage in enumerate(answer["results"], start=1):
            hit = question.is_answered_by(passage)
            heading = f"{rank}. {source_of(passage['file_name'], passage)}, {score_of(passage)}"
            excerpt = _excerpt(passage["text"], question.phrase)
            self._screen.passage(heading, "<- here" if hit else "", excerpt)
        if not any(map(question.is_answered_by, answer["results"])):
            expected = f"{question.file_name}, page {question.page}"
            raise DemoError(f"no passage of {expected} that says {question.phrase!r} was found", "search")

    async def read(self, file_id: int) -> None:
        """Read two pages, and see that it is those."""
        first, last = READ_PAGES
        self._screen.say(Text(f"\n{MANUAL}, pages {first} and {last}", "bold cyan"))
        self._screen.say("What to see: a read, not a search. Every passage of the two pages in order, without a score.")
        answer = await self._client.chunks(file_id, pages=f"{first}-{last}")
        for chunk in answer["chunks"]:
            heading = source_of(answer["file_name"], chunk)
            self._screen.passage(heading, f"position {chunk['position']}", _excerpt(chunk["text"]))
        spans = [(chunk["page_from"], chunk["page_to"]) for chunk in answer["chunks"]]
        pages = {page for page_from, page_to in spans for page in range(page_from, page_to + 1)}
        if not pages.issuperset(READ_PAGES) or any(to < first or last < start for start, to in spans):
            raise DemoError(f"pages {first} to {last} were asked for, {spans} came", "search")


def _excerpt(text: str, phrase: str = "") -> str:
    """A part of the text on one line, around the phrase if it is there."""
    text = " ".join(text.split())
    start = max(0, text.find(phrase) - EXCERPT // 2)
    part = text[start : start + EXCERPT]
    return f"{'…' if start else ''}{part}{'…' if start + EXCERPT < len(text) else ''}"


async def _show(stack: RunningStack, samples: list[Path], screen: Screen) -> None:
    told = stack.announcement
    async with open_http() as http:
        demo = Demo(CauceClient(http, Addresses(told["files_url"], told["search_url"])), screen)
        screen.say(Text("\nThree documents on their way", "bold"))
        with _faults_of("files"):
            ids = await demo.ingest(samples)
        with _faults_of("search"):
            for question in QUESTIONS:
                await demo.ask(question)
            await demo.read(ids[MANUAL])


@contextmanager
def _faults_of(role: str) -> Iterator[None]:
    try:
        yield
    except CommandError as error:
        raise DemoError(str(error), role) from error


def _run(folder: Path, screen: Screen, *, keep: bool) -> None:
    started = time.monotonic()
    screen.say(Text("The stack starts: database, broker, three services, a worker", "bold"))
    data_dir = folder / "stack"
    with running_stack(data_dir, lambda line: screen.say(Text(printable(line), "dim")), keep=keep) as stack:
        screen.say(f"ready after {time.monotonic() - started:.0f} s")
        asyncio.run(_show(stack, write_samples(folder / "samples"), screen))
        screen.say(Text(f"\nAll as it must be, after {time.monotonic() - started:.0f} s.", "bold green"))
        if keep:
            screen.say("The stack goes on:")
            for name, value in stack.announcement.items():
                screen.say(f"  {name:<16}{value}")
            screen.say(f"Ask it:   .venv/bin/cauce search --data-dir {data_dir} '¿...?'")
            screen.say(f"Stop it:  kill -INT {stack.process.pid}    then: rm -r {folder}")


def _show_failure(error: DemoError, folder: Path, screen: Screen) -> None:
    screen.say(Text(f"\nThe demo failed: {printable(str(error))}", "bold red"))
    log = folder / "stack" / "logs" / f"{error.role}.log"
    if error.role is not None and log.exists():
        screen.say(f"The end of {log}:")
        for line in log.read_text("utf-8", "replace").splitlines()[-LOG_LINES:]:
            screen.say(f"  {printable(line)}")
    screen.say(f"Everything it left is in {folder}")


def main() -> int:
    """Run the demo; the exit status is 0 when everything was as it must be."""
    parser = argparse.ArgumentParser(prog="python -m deploy.demo", description=__doc__)
    parser.add_argument("--keep", action="store_true", help="leave the stack running and print its addresses")
    keep = parser.parse_args().keep
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    screen = Screen(as_json=False)
    folder = Path(tempfile.mkdtemp(prefix="cauce-demo-"))
    # Under root the database runs under an account of its own, which has to get through.
    folder.chmod(0o711)
    status = 0
    try:
        _run(folder, screen, keep=keep)
    except (DemoError, UnavailableError) as error:
        _show_failure(error if isinstance(error, DemoError) else DemoError(str(error)), folder, screen)
        return 1
    except KeyboardInterrupt:
        keep = False
        status = 130
    if not keep:
        shutil.rmtree(folder)
    return status


if __name__ == "__main__":
    sys.exit(main())
