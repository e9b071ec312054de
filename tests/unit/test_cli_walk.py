"""Which files a path stands for."""

from __future__ import annotations

import os
from pathlib import Path

from cli.walk import Skipped, Unusable, find_files


def names(top: Path) -> list[str]:
    return [str(item.relative_to(top)) for item in find_files([top]) if isinstance(item, Path)]


def skipped(top: Path) -> dict[str, str]:
    return {str(item.path.relative_to(top)): item.reason for item in find_files([top]) if isinstance(item, Skipped)}


def test_folders_are_gone_through_in_order_of_name(tmp_path: Path) -> None:
    for name in ("b/2.txt", "b/1.txt", "a/c/3.txt", "z.txt"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    assert names(tmp_path) == ["z.txt", "a/c/3.txt", "b/1.txt", "b/2.txt"]


def test_hidden_names_are_skipped_and_said(tmp_path: Path) -> None:
    (tmp_path / ".git").mkdir()
    (tmp_path / ".git" / "config").touch()
    (tmp_path / ".env").touch()
    assert names(tmp_path) == []
    assert skipped(tmp_path) == {".git": "hidden", ".env": "hidden"}


def test_a_hidden_file_that_is_named_is_taken(tmp_path: Path) -> None:
    (tmp_path / ".env").touch()
    assert list(find_files([tmp_path / ".env"])) == [tmp_path / ".env"]


def test_a_loop_of_symbolic_links_is_gone_through_once(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "1.txt").touch()
    (tmp_path / "a" / "up").symlink_to(tmp_path)
    (tmp_path / "b").symlink_to(tmp_path / "a")
    assert names(tmp_path) == ["a/1.txt"]
    assert set(skipped(tmp_path)) == {"a/up", "b"}


def test_what_is_no_regular_file_is_skipped_in_a_folder(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "broken").symlink_to(tmp_path / "absent")
    assert set(skipped(tmp_path)) == {"pipe", "broken"}


def test_what_is_asked_for_and_is_no_file_is_unusable(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    found = list(find_files([tmp_path / "pipe", tmp_path / "absent"]))
    assert [item.error.code for item in found if isinstance(item, Unusable)] == ["NOT_A_FILE", "PATH_NOT_FOUND"]
