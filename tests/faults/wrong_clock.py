"""Runs a worker in a process that takes the time for ``SECONDS`` later than it is: ``wrong_clock.py SECONDS``."""

from __future__ import annotations

import datetime
import runpy
import sys
import time
from typing import Any


def main() -> None:
    """Shift what tells the time of day; what measures time is left alone, as a wrong clock leaves it."""
    seconds = float(sys.argv[1])
    now, now_ns = time.time, time.time_ns
    time.time = lambda: now() + seconds
    time.time_ns = lambda: now_ns() + int(seconds * 1e9)

    class Later(datetime.datetime):
        @classmethod
        def now(cls, tz: datetime.tzinfo | None = None) -> Any:
            return cls.fromtimestamp(time.time(), tz)

        @classmethod
        def utcnow(cls) -> Any:
            return cls.fromtimestamp(time.time(), datetime.UTC).replace(tzinfo=None)

    datetime.datetime = Later  # type: ignore[misc]
    runpy.run_module("services.embeddings.worker", run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
