"""How long to wait before what failed is tried again."""

from __future__ import annotations

import random


def backoff(failures: int, *, base_seconds: float, cap_seconds: float) -> float:
    """Seconds to wait after so many failures, from 1: exponential with jitter, so that not all come back together."""
    delay: float = min(cap_seconds, base_seconds * 2 ** min(failures - 1, 30))
    return random.uniform(0.5, 1.0) * delay  # noqa: S311 - jitter needs no secrecy
