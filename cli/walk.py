"""The files that paths stand for: folders recursively, in order of name, each folder once."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from cli.errors import CommandError


@dataclass(frozen=True, slots=True)
class Skipped:
    """Something in a folder that is left out on purpose."""

    path: Path
    reason: str


@dataclass(frozen=True, slots=True)
class Unusable:
    """Something that was asked for and cannot be had."""

    path: Path
    error: CommandError


def find_files(paths: Iterable[Path]) -> Iterator[Path | Skipped | Unusable]:
    """Yield the files, and what is not taken with its reason.

    In a folder, hidden names, what is no regular file, and folders seen before (a loop of symbolic links) are skipped.
    A path that is given itself is taken even if hidden, and is an error when it is no file or folder.
    """
    for path in paths:
        if path.is_dir():
            yield from _walk(path)
        elif path.is_file():
            yield path
        elif path.exists():
            yield Unusable(path, CommandError("NOT_A_FILE", "neither a file nor a folder"))
        else:
            yield Unusable(path, CommandError("PATH_NOT_FOUND", "there is no such file or folder"))


def _walk(top: Path) -> Iterator[Path | Skipped | Unusable]:
    seen: set[tuple[int, int]] = set()
    unreadable: list[OSError] = []
    for root, folders, names in os.walk(top, followlinks=True, onerror=unreadable.append):
        folder = Path(root)
        hidden = sorted(name for name in folders + names if name.startswith("."))
        yield from (Skipped(folder / name, "hidden") for name in hidden)
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        stat = folder.stat()
        if (stat.st_dev, stat.st_ino) in seen:
            folders.clear()
            yield Skipped(folder, "seen before: a symbolic link leads here")
            continue
        seen.add((stat.st_dev, stat.st_ino))
        for name in sorted(names):
            if name.startswith("."):
                continue
            path = folder / name
            yield path if path.is_file() else Skipped(path, "not a regular file")
    for fault in unreadable:
        yield Unusable(Path(fault.filename), CommandError("UNREADABLE", fault.strerror or str(fault)))
