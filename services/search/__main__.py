"""``python -m services.search``: the search service over HTTP."""

from __future__ import annotations

from services.chassis.http.server import serve
from services.chassis.observability import setup
from services.search.bootstrap import build_app
from services.search.settings import GeminiSettings, SearchSettings


def main() -> None:
    """Serve until a signal stops the process."""
    setup("search")
    settings = SearchSettings()
    serve(build_app(settings, GeminiSettings().model_settings()), settings)


if __name__ == "__main__":
    main()
