"""``python -m services.search``: the search service over HTTP."""

from __future__ import annotations

from dataclasses import replace

from services.chassis.http.server import serve
from services.chassis.observability import setup
from services.chassis.start import saying_refusals
from services.chassis.stopping import leave
from services.search.bootstrap import build_app
from services.search.settings import GeminiSettings, LanguageModelSettings, SearchSettings


def main() -> None:
    """Serve until a signal stops the process."""
    setup("search")
    with saying_refusals():
        settings = SearchSettings()
        models = replace(GeminiSettings().model_settings(), language=LanguageModelSettings().language_settings())
        serve(build_app(settings, models), settings)
    leave()


if __name__ == "__main__":
    main()
