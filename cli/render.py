"""What a person or a program sees.

With ``--json`` standard output carries one JSON object a line, in UTF-8, and nothing else. Without it, results go to
standard output and notes to standard error. Tables, colours and live progress appear in a terminal only; elsewhere a
result is a plain line.
"""

from __future__ import annotations

import io
import json
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from rich.console import Console
from rich.padding import Padding
from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TaskID, TextColumn
from rich.table import Table
from rich.text import Text

from cli.errors import CommandError

LINE_FIELDS = ("file_id", "name", "status", "outcome", "pages", "chunks", "error_code", "error_message")

_STYLES = {"COMPLETED": "green", "FAILED": "red", "PROCESSING": "cyan"}
_LIST_COLUMNS = ("ID", "STATUS", "NAME", "RESULT")
_MAX_SHOWN_NAME = 40


class Screen:
    """Standard output and standard error of one command."""

    def __init__(self, *, as_json: bool) -> None:
        _make_safe(sys.stdout, encoding="utf-8" if as_json else None)
        _make_safe(sys.stderr)
        self.as_json = as_json
        self._out = Console(highlight=False, markup=False, emoji=False)
        self._err = Console(highlight=False, markup=False, emoji=False, stderr=True)
        self._in_terminal = sys.stdout.isatty()
        self._notes = self._out if self._in_terminal and not as_json and sys.stderr.isatty() else self._err
        # The display stands where results are printed, so that they push it down instead of crossing it.
        self._live = self._notes if self._in_terminal else self._err
        self._shows_progress = self._live.file.isatty() and not (as_json and self._in_terminal)

    def record(self, record: Mapping[str, Any]) -> None:
        """Print one JSON line."""
        sys.stdout.write(json.dumps(record, ensure_ascii=False) + "\n")
        sys.stdout.flush()

    def tell(self, record: dict[str, Any], show: Callable[[Screen, dict[str, Any]], None]) -> None:
        """Print a result: as JSON, or as ``show`` does for a person."""
        if self.as_json:
            self.record(record)
        else:
            show(self, record)

    def confirm(self, record: dict[str, Any], sentence: str) -> None:
        """Say what was done: as JSON, or in a sentence for a person."""
        self.tell(record, lambda screen, _: screen.say(sentence))

    def say(self, text: Text | str) -> None:
        """Print a result for a person, in one line however long."""
        self._out.print(text, soft_wrap=True)

    def row(self, *fields: str) -> None:
        """Print a result for a person or a program, with tabs between its fields; a console would expand them."""
        sys.stdout.write("\t".join(fields) + "\n")
        sys.stdout.flush()

    def note(self, text: str) -> None:
        """Tell a person something that is not a result."""
        self._notes.print(Text(text, "dim"), soft_wrap=True)

    def fail(self, error: CommandError) -> None:
        """Say why the command ends."""
        if self.as_json:
            fields = {"code": error.code, "detail": error.detail, "where": error.where, "remedy": error.remedy}
            self.record({"error": fields})
        else:
            self._err.print(Text(printable(str(error)), "red"), soft_wrap=True)

    def progress(self) -> FileProgress:
        """A live display of files on their way; nothing at all outside a terminal."""
        return FileProgress(self._live, shown=self._shows_progress)

    @contextmanager
    def counting(self, what: str, total: int) -> Iterator[Callable[[], None]]:
        """Show on standard error how far a work of equal steps is: a bar in a terminal, else one line."""
        columns = (TextColumn("{task.description}", markup=False), BarColumn(24), MofNCompleteColumn())
        with Progress(*columns, console=self._err, transient=True, disable=not self._err.is_terminal) as bars:
            task = bars.add_task(what, total=total)
            yield lambda: bars.advance(task)
        self._err.print(Text(f"{what}: {total}", "dim"))

    def table(self, columns: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
        """Print rows under a heading: a table in a terminal, else a line each, with tabs between its fields."""
        if not self._in_terminal:
            for row in (columns, *rows):
                self.row(*row)
            return
        table = Table(*columns, box=None, header_style="bold")
        for row in rows:
            table.add_row(*map(Text, row))
        self._out.print(table)

    def line(self, file: Mapping[str, Any]) -> None:
        """Print how a file stands, in one line."""
        if self.as_json:
            self.record({field: file[field] for field in LINE_FIELDS})
            return
        status = str(file["status"])
        number = "-" if file["file_id"] is None else str(file["file_id"])
        name = printable(file["name"])
        self.say(Text.assemble((f"{status:<10}", _STYLES.get(status, "")), f"{number:>6}  {name}  ", summary(file)))

    def listing(self, files: Sequence[Mapping[str, Any]]) -> None:
        """Print files: a table in a terminal, else a line each, with tabs between its fields."""
        if self.as_json:
            for file in files:
                self.record(file)
            return
        rows = [(str(file["file_id"]), file["status"], printable(file["name"]), summary(file)) for file in files]
        if not self._in_terminal:
            for row in rows:
                self.row(*row)
            return
        table = Table(*_LIST_COLUMNS, box=None, header_style="bold")
        for number, status, name, result in rows:
            table.add_row(number, Text(status, _STYLES.get(status, "")), Text(name), Text(result))
        self._out.print(table)

    def file(self, file: Mapping[str, Any]) -> None:
        """Print all that is known of a file, a line for each thing."""
        if self.as_json:
            self.record(file)
            return
        for name, value in file.items():
            if value is not None:
                shown = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
                self.say(Text.assemble((f"{name:<15}", "dim"), printable(shown)))

    def passage(self, heading: str, where: str, text: str) -> None:
        """Print a heading and, indented under it, the text of a chunk."""
        self.say(Text.assemble((printable(heading), "bold"), (f"  {where}" if where else "", "dim")))
        body = Text(printable(text, keep="\n\t"))
        if self._in_terminal:
            self._out.print(Padding(body, (0, 0, 0, 4)))
        else:
            self.say("\n".join(f"    {line}" for line in body.plain.splitlines()))


class FileProgress:
    """Files on their way, a bar for each, by stage."""

    def __init__(self, console: Console, *, shown: bool) -> None:
        name = TextColumn("{task.description}", markup=False)
        stage = TextColumn("{task.fields[stage]}", style="cyan", markup=False)
        count = TextColumn("{task.fields[count]}", style="dim", markup=False)
        self._bars = Progress(
            SpinnerColumn(),
            name,
            stage,
            BarColumn(24),
            count,
            console=console,
            transient=True,
            redirect_stdout=False,
            redirect_stderr=False,
            disable=not shown,
        )

    def __enter__(self) -> FileProgress:
        self._bars.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._bars.stop()

    @contextmanager
    def file(self, name: str) -> Iterator[FileBar]:
        """Show one file for the time of the context."""
        shown = printable(name)
        if len(shown) > _MAX_SHOWN_NAME:
            shown = f"{shown[: _MAX_SHOWN_NAME - 1]}…"
        task = self._bars.add_task(shown, stage="", count="")
        try:
            yield FileBar(self._bars, task)
        finally:
            self._bars.remove_task(task)


class FileBar:
    """The bar of one file."""

    def __init__(self, bars: Progress, task: TaskID) -> None:
        self._bars = bars
        self._task = task

    def sent(self, sent_bytes: int, size_bytes: int) -> None:
        """So much of the file has left."""
        self._bars.update(self._task, total=max(size_bytes, 1), completed=sent_bytes, stage="UPLOADING")

    def show(self, file: Mapping[str, Any]) -> None:
        """This is how far the stack is with the file."""
        done, total = file["progress"]["done"], file["progress"]["total"]
        count = f"{done}/{total}" if total else ""
        stage = file["stage"] or file["status"]
        self._bars.update(self._task, total=max(total, 1), completed=done, stage=stage, count=count)


def summary(file: Mapping[str, Any]) -> str:
    """How a file stands, in a few words: its counts, its stage, or what is wrong."""
    if file["error_code"]:
        return f"{file['error_code']}: {printable(file['error_message'] or '')}"
    if file["outcome"] == "EMPTY":
        return f"empty: {printable(file['outcome_reason'] or '')}"
    if file["status"] == "COMPLETED":
        counts = [_count(file[noun], noun) for noun in ("pages", "chunks") if file[noun] is not None]
        failed = file.get("failed_descriptions", 0)
        return ", ".join([*counts, *([f"{_count(failed, 'images')} not described"] if failed else [])])
    if file["status"] == "PROCESSING" and file["stage"]:
        done, total = file["progress"]["done"], file["progress"]["total"]
        return f"{file['stage']} {done}/{total}" if total else str(file["stage"])
    return ""


def printable(text: str, *, keep: str = "") -> str:
    """``text`` with what could steer a terminal written out, except the characters of ``keep``."""
    return "".join(c if c.isprintable() or c in keep else c.encode("unicode_escape").decode() for c in text)


def _count(number: int, noun: str) -> str:
    return f"{number} {noun.removesuffix('s') if number == 1 else noun}"


def _make_safe(stream: Any, encoding: str | None = None) -> None:
    """Print what the terminal's encoding lacks as escapes; never end with a traceback because of a file name."""
    if isinstance(stream, io.TextIOWrapper):
        stream.reconfigure(encoding=encoding, errors="backslashreplace")
