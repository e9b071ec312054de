"""What the models need to know. A service fills it in from its own settings; nothing here reads the environment."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class ModelSettings:
    """Settings of the models of one process.

    Attributes:
        gemini_api_key: needed by every Gemini model.
        gemini_base_url: where the Gemini API is; a proxy or a local server may stand in.
        gemini_vision_model: the model that describes images.
        gemini_timeout_seconds: the longest wait for one answer.
        gemini_deadline_seconds: the longest wait for one call with its retries and quota pauses. Short for a search,
            which somebody waits for; long for a worker.
        gemini_concurrency: calls of this process under way at once.
        gemini_items_per_call: texts in one call, at most 100. Quota counts texts, so a quota per minute that is smaller
            than this can never be met: lower it then.
    """

    gemini_api_key: str | None = field(default=None, repr=False)
    gemini_base_url: str = "https://generativelanguage.googleapis.com"
    gemini_vision_model: str = "gemini-3.5-flash"
    gemini_timeout_seconds: float = 30.0
    gemini_deadline_seconds: float = 120.0
    gemini_concurrency: int = 4
    gemini_items_per_call: int = 100
