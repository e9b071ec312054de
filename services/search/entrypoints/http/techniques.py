"""The techniques as parameters of a search, the same for every search."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, Field
from pydantic.alias_generators import to_camel

from services.search.domain.techniques import Speaker, Techniques, Turn


class TurnRequest(BaseModel):
    """What was said before the question."""

    model_config = ConfigDict(extra="forbid", strict=True)

    role: Speaker = Field(default=Speaker.USER, strict=False, description="Who said it.")
    text: str = Field(description="1 to 4,000 characters.")


class RewriteRequest(BaseModel):
    """What a question is rewritten by."""

    model_config = ConfigDict(extra="forbid", strict=True)

    history: list[TurnRequest] = Field(
        description="What was said before the question, oldest first; at most 20 turns.", max_length=1000
    )


class TechniqueParameters(BaseModel):
    """What a language model is to do with the question. Each costs a call, and changes nothing if it fails."""

    model_config = ConfigDict(alias_generator=to_camel, extra="forbid", strict=True)

    rewrite: RewriteRequest | None = Field(
        default=None, description="Make a question that follows others stand alone; both are searched for."
    )
    multi_query: int | None = Field(
        default=None, description="Search for so many other wordings of the question as well, 1 to 5."
    )
    hyde: bool = Field(default=False, description="Look near a hypothetical passage that answers the question as well.")
    rerank: int | None = Field(
        default=None, description="Have so many of the first results put in order by a language model, 2 to 50."
    )

    def techniques(self) -> Techniques:
        """The same, checked. Raises InvalidInputError ``INVALID_REQUEST``."""
        history = None
        if self.rewrite is not None:
            history = tuple(Turn(turn.role, turn.text) for turn in self.rewrite.history)
        return Techniques(history, self.multi_query, self.hyde, self.rerank)
