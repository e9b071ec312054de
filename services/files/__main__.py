"""Runs the files service: HTTP, relay and janitor."""

from __future__ import annotations

from services.chassis.http.server import serve
from services.chassis.observability import setup
from services.chassis.start import saying_refusals
from services.chassis.stopping import leave
from services.files.bootstrap import build_app
from services.files.settings import FilesSettings


def main() -> None:
    """Serve until a signal stops the process."""
    setup("files")
    with saying_refusals():
        settings = FilesSettings()
        serve(build_app(settings), settings)
    leave()


if __name__ == "__main__":
    main()
