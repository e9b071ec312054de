"""Ports for servers that are told theirs before they listen."""

from __future__ import annotations

import os
from collections.abc import Iterator
from itertools import count
from random import randrange

from deploy.embedded.process import port_fault

FIRST, EACH, PROCESSES = 10_000, 1_000, 10
"""Below those that the system gives out: a port is chosen long before it is listened on, and nobody may get it then."""


def free_port() -> int:
    """A port that nothing listens on now, of those that this one of the processes that share the tests gives out."""
    return next(port for port in _own if port_fault(port) is None)


def _ports_of_this_process() -> Iterator[int]:
    process = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw")) % PROCESSES
    begin = randrange(EACH)
    return (FIRST + process * EACH + (begin + number) % EACH for number in count())


_own = _ports_of_this_process()
