"""The Gemini API with little to give: so many texts in a window, so long for an answer."""

from __future__ import annotations

import time
from dataclasses import dataclass
from email.message import Message
from random import Random
from threading import Lock

from tests.support.gemini_server import GeminiServer, Reply, Request, failure


@dataclass
class Window:
    """A span of time that begins with the first call after the one before, and what was embedded in it.

    Attributes:
        ends: when there is another, by ``time.monotonic``.
        texts: how many were embedded.
        was_short: whether more was asked for.
    """

    ends: float
    texts: int = 0
    was_short: bool = False


class ScarceGemini(GeminiServer):
    """Refuses with a 429 what is more than allowed, and asks to wait until the window ends.

    Attributes:
        windows: those that were opened, in order.
        embedded: the texts of each call that was let through.
        refused: calls that were not.
        most_at_once: calls that were answered at the same time.
    """

    def __init__(
        self,
        *,
        texts: int | None = None,
        window_seconds: float = 1.0,
        latency_seconds: float = 0.0,
        latency_spread: float = 0.0,
        until_short: bool = False,
    ) -> None:
        """``texts`` are allowed in a window; None: any number. ``until_short``: it lasts until more is asked for.

        An answer takes the latency on average, and up to that share of it, ``latency_spread``, more or less.
        """
        super().__init__()
        self._until_short = until_short
        self._allowed = texts
        self._window_seconds = window_seconds
        self._latency_seconds = latency_seconds
        self._latency_spread = latency_spread
        self._random = Random(0)
        self._counting = Lock()
        self.windows: list[Window] = []
        self.embedded: list[list[str]] = []
        self.refused = 0
        self.at_once = self.most_at_once = 0

    def answer(self, request: Request, path: str, headers: Message, body: bytes) -> Reply:
        """Answer after the latency, or refuse at once."""
        if request.method != "batchEmbedContents":
            return super().answer(request, path, headers, body)
        texts = request.texts
        with self._counting:
            wait = self._take(len(texts))
            if wait is not None:
                self.refused += 1
                return failure(429, "RESOURCE_EXHAUSTED", retry_info=f"{wait + 0.001:.3f}s")
            self.embedded.append(texts)
            self.at_once += 1
            self.most_at_once = max(self.most_at_once, self.at_once)
        try:
            time.sleep(self._latency_seconds * (1 + self._latency_spread * self._random.uniform(-1, 1)))
            return super().answer(request, path, headers, body)
        finally:
            with self._counting:
                self.at_once -= 1

    def _take(self, texts: int) -> float | None:
        """Count the texts, or return the seconds until there may be more."""
        now = time.monotonic()
        last = self.windows[-1] if self.windows else None
        if last is None or (now >= last.ends and (last.was_short or not self._until_short)):
            self.windows.append(Window(now + self._window_seconds))
        window = self.windows[-1]
        if self._allowed is not None and window.texts + texts > self._allowed:
            window.was_short = True
            return max(0.0, window.ends - now)
        window.texts += texts
        return None
