"""Sends a record that was set aside to where it came from, once what ailed it is mended."""

from __future__ import annotations

from dataclasses import dataclass

from services.chassis.kernel.errors import ConflictError
from services.chassis.kernel.scope import AccessScope
from services.embeddings.application.dead_letter_ports import DeadLetters
from services.embeddings.application.read_dead_letters import ReadDeadLetters
from services.embeddings.domain.dead_letter import Place, Replay


@dataclass(frozen=True, slots=True)
class ReplayDeadLetter:
    """The use case. The letter stays where it is: a replay that is repeated does no harm."""

    dead_letters: DeadLetters
    read: ReadDeadLetters

    async def __call__(self, scope: AccessScope, place: Place) -> Replay:
        """Replay the letter at this place and say what became of it.

        Raises:
            NotFoundError: ``DEAD_LETTER_NOT_FOUND``.
            ConflictError: ``NOT_REPLAYABLE``.
            UnavailableError: ``BROKER_UNAVAILABLE``.
        """
        letter = await self.read.get(scope, place)
        if not letter.is_whole:
            raise ConflictError(
                "NOT_REPLAYABLE",
                "what the record held is not kept here: it was too large, or could not be decoded",
                where=str(place),
                remedy="have whoever published it publish it again, or run `cauce sweep`",
            )
        return await self.dead_letters.replay(letter)
