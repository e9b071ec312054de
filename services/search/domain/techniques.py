"""What a caller may have a language model do with a question, and what became of it.

No technique can make an answer worse without showing: the question as it was asked always takes part, scores are of
the text that ``Executed`` names, and a technique that did not run says so and why.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from services.chassis.kernel.errors import InvalidInputError
from services.chassis.kernel.text import sanitise
from services.search.domain.limits import require_between

HISTORY_TURNS_MAX = 20
TURN_MAX_CHARACTERS = 4_000
VARIANTS_MAX = 5
RERANK_MIN = 2
RERANK_MAX = 50


class Speaker(StrEnum):
    """Who said something in a conversation."""

    USER = "user"
    ASSISTANT = "assistant"


@dataclass(frozen=True, slots=True)
class Turn:
    """What was said before the question; kept without control characters and surrounding white space.

    Raises:
        InvalidInputError: ``INVALID_REQUEST`` for one without text or of more than 4,000 characters.
    """

    speaker: Speaker
    text: str

    def __post_init__(self) -> None:
        object.__setattr__(self, "text", sanitise(self.text).strip())
        if not 1 <= len(self.text) <= TURN_MAX_CHARACTERS:
            raise InvalidInputError(
                "INVALID_REQUEST",
                f"a turn of the history has {len(self.text)} characters; it must have 1 to {TURN_MAX_CHARACTERS}",
                where="rewrite.history",
                remedy="leave empty turns out and shorten long ones",
            )


@dataclass(frozen=True, slots=True)
class Techniques:
    """Which techniques are wanted; none by default.

    Attributes:
        history: what was said before, oldest first: the question is rewritten to stand alone. None asks for no
            rewriting.
        multi_query: 1 to 5; how many other wordings of the question are searched as well.
        hyde: also look near a hypothetical passage that would answer the question (Gao et al., 2022).
        rerank: 2 to 50; how many of the first results a language model puts in order.

    Raises:
        InvalidInputError: ``INVALID_REQUEST``, with the parameter's wire name.
    """

    history: tuple[Turn, ...] | None = None
    multi_query: int | None = None
    hyde: bool = False
    rerank: int | None = None

    def __post_init__(self) -> None:
        require_between("the number of turns", len(self.history or ()), 0, HISTORY_TURNS_MAX, where="rewrite.history")
        if self.multi_query is not None:
            require_between("multiQuery", self.multi_query, 1, VARIANTS_MAX, where="multiQuery")
        if self.rerank is not None:
            require_between("rerank", self.rerank, RERANK_MIN, RERANK_MAX, where="rerank")

    def __bool__(self) -> bool:
        return self.history is not None or self.multi_query is not None or self.hyde or self.rerank is not None


class TechniqueName(StrEnum):
    """The techniques, in the order in which they run."""

    REWRITE = "rewrite"
    MULTI_QUERY = "multi_query"
    HYDE = "hyde"
    RERANK = "rerank"


class TechniqueStatus(StrEnum):
    """RAN; FAILED at this very search; SKIPPED, for there was nothing to do; UNAVAILABLE without a language model.

    Whatever did not run changed nothing: the answer is that of the search without it.
    """

    RAN = "RAN"
    FAILED = "FAILED"
    SKIPPED = "SKIPPED"
    UNAVAILABLE = "UNAVAILABLE"


@dataclass(frozen=True, slots=True)
class TechniqueReport:
    """What became of a technique.

    Attributes:
        reason: why it did not run, or what of the model's answer was left aside.
        model: whose answer it was, None when none was asked.
        tokens_in: that the model read, as it said itself; None when it did not say. A failed call may cost as well.
        tokens_out: that it wrote, likewise.
        milliseconds: the call took.
        cost: of those tokens, in the currency of the configured prices; None without prices or tokens.
        cached: the model was not asked, as its answer to the same was known.
    """

    name: TechniqueName
    status: TechniqueStatus
    reason: str | None = None
    model: str | None = None
    tokens_in: int | None = None
    tokens_out: int | None = None
    milliseconds: int = 0
    cost: float | None = None
    cached: bool = False


class QueryKind(StrEnum):
    """Where an executed text came from.

    QUESTION is what was asked; REWRITTEN is the model's standalone form of it, and then the one that scores are of;
    VARIANT is another wording; HYPOTHETICAL is an invented passage, of which nothing is ever shown as a result.
    """

    QUESTION = "question"
    REWRITTEN = "rewritten"
    VARIANT = "variant"
    HYPOTHETICAL = "hypothetical"


@dataclass(frozen=True, slots=True)
class ExecutedQuery:
    """A text that was searched for. The first one is what scores and ranks of results refer to."""

    kind: QueryKind
    text: str
