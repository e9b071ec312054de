"""The demo, as ``make demo`` runs it."""

from __future__ import annotations

import subprocess
import sys

from deploy.demo import QUESTIONS


def test_the_demo_finds_what_it_promises() -> None:
    done = subprocess.run([sys.executable, "-m", "deploy.demo"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout
    assert all(question.text in done.stdout for question in QUESTIONS)
    assert done.stdout.count("<- here") >= len(QUESTIONS)
    assert "stopped" in done.stdout
