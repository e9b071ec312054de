"""What the models need to know. A service fills it in from its own settings; nothing here reads the environment."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from services.chassis.models.language import Prices
from services.chassis.models.limiter import LONGEST_PAUSE_SECONDS, Rates


@dataclass(frozen=True, slots=True)
class LanguageSettings:
    """Settings of the language model of one process.

    Attributes:
        provider: ``none``, ``gemini``, or ``openai`` for any server with that API.
        model: its name at the provider; of Gemini a default, of others needed.
        base_url: of an ``openai`` server, up to and with its version, as in ``http://127.0.0.1:8000/v1``.
        api_key: of an ``openai`` server that wants one; Gemini has its own.
        timeout_seconds: the longest wait for an answer, with retries and waits for quota, and for all of one search.
        concurrency: calls of this process under way at once.
        prices: for costs in answers.
    """

    provider: Literal["none", "gemini", "openai"] = "none"
    model: str | None = None
    base_url: str | None = None
    api_key: str | None = field(default=None, repr=False)
    timeout_seconds: float = 10.0
    concurrency: int = 8
    prices: Prices | None = None


@dataclass(frozen=True, slots=True)
class ModelSettings:
    """Settings of the models of one process.

    Attributes:
        gemini_api_key: needed by every Gemini model.
        gemini_base_url: where the Gemini API is; a proxy or a local server may stand in.
        gemini_vision_model: the model that describes images.
        gemini_timeout_seconds: the longest wait for one answer.
        gemini_deadline_seconds: the longest wait for one call with its retries, and the longest pause that is waited
            for within it; before a longer one the call is given up.
        gemini_waits_count: whether waits for quota count against the deadline, as in a search that somebody waits for.
            A worker waits as long as it takes, for giving up would throw away what was embedded before.
        gemini_longest_pause_seconds: the longest that a model is left alone, however long its provider asks to wait,
            and however often it was tried in vain while it is out.
        gemini_concurrency: calls to one model under way at once: of all workers together, or of one other process.
        gemini_quotas: what all workers together may use of a model, by its id.
        gemini_items_per_call: texts in one call, at most 100. Quota counts texts, so a quota per minute that is smaller
            than this can never be met: lower it then.
        language: the language model.
    """

    gemini_api_key: str | None = field(default=None, repr=False)
    gemini_base_url: str = "https://generativelanguage.googleapis.com"
    gemini_vision_model: str = "gemini-3.5-flash"
    gemini_timeout_seconds: float = 30.0
    gemini_deadline_seconds: float = 120.0
    gemini_waits_count: bool = False
    gemini_longest_pause_seconds: float = LONGEST_PAUSE_SECONDS
    gemini_concurrency: int = 16
    gemini_quotas: Mapping[str, Rates] = field(default_factory=dict)
    gemini_items_per_call: int = 100
    language: LanguageSettings = field(default_factory=LanguageSettings)
