"""Shows what was set aside: to operators all of it, else what names no other tenant."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from services.chassis.kernel.errors import InvalidInputError, NotFoundError
from services.chassis.kernel.scope import AccessScope
from services.embeddings.application.dead_letter_ports import DeadLetters
from services.embeddings.domain.dead_letter import DeadLetter, Place

MOST = 500


@dataclass(frozen=True, slots=True)
class DeadLetterPage:
    """Some dead letters, and where the next page starts, None at the end."""

    letters: Sequence[DeadLetter]
    next: Place | None


@dataclass(frozen=True, slots=True)
class ReadDeadLetters:
    """The use case. A letter whose tenant cannot be read is shown to everybody: it is nobody else's.

    Attributes:
        to_operators: whether all callers are operators, who see those of every tenant.
    """

    dead_letters: DeadLetters
    to_operators: bool = False

    async def page(self, scope: AccessScope, limit: int, after: Place | None) -> DeadLetterPage:
        """The letters behind ``after``, in order of their place. A page may hold fewer than ``limit``.

        Raises:
            InvalidInputError: ``INVALID_REQUEST`` for a limit that is not 1 to 500.
            UnavailableError: ``BROKER_UNAVAILABLE``.
        """
        if not 1 <= limit <= MOST:
            raise InvalidInputError("INVALID_REQUEST", f"limit must be from 1 to {MOST}", where="query.limit")
        letters = await self.dead_letters.read(limit, after)
        visible = [letter for letter in letters if self._is_visible(letter, scope)]
        return DeadLetterPage(visible, letters[-1].place if len(letters) == limit else None)

    async def get(self, scope: AccessScope, place: Place) -> DeadLetter:
        """The letter at this place.

        Raises:
            NotFoundError: ``DEAD_LETTER_NOT_FOUND``.
            UnavailableError: ``BROKER_UNAVAILABLE``.
        """
        letter = await self.dead_letters.find(place)
        if letter is None or not self._is_visible(letter, scope):
            raise NotFoundError("DEAD_LETTER_NOT_FOUND", f"there is no dead letter {place}", where=str(place))
        return letter

    def _is_visible(self, letter: DeadLetter, scope: AccessScope) -> bool:
        return self.to_operators or letter.tenant_id in {None, scope.tenant_id}
