"""Runs the embeddings service: HTTP, intake, relay and schedule."""

from __future__ import annotations

from services.chassis.http.server import serve
from services.chassis.observability import setup
from services.chassis.start import saying_refusals
from services.chassis.stopping import leave
from services.embeddings.bootstrap import build_app
from services.embeddings.settings import EmbeddingsSettings


def main() -> None:
    """Serve until a signal stops the process."""
    setup("embeddings")
    with saying_refusals():
        settings = EmbeddingsSettings()
        serve(build_app(settings), settings)
    leave()


if __name__ == "__main__":
    main()
