"""The embedding space that searches run in: the one that the database says is active, and no other."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from services.chassis.kernel.errors import CauceError, ConfigurationError, UnavailableError
from services.chassis.models.space import EmbeddingSpace
from services.search.application.ports import QueryEmbedder, RecordedSpace, Spaces


@dataclass(frozen=True, slots=True)
class SearchSpace:
    """An active space with its embedder, loaded and tried."""

    space_id: int
    embedder: QueryEmbedder


class ActiveSpace:
    """Follows the database.

    ``refresh`` is called at the start and again from time to time; searches ask ``require``, which does not wait.
    """

    def __init__(self, spaces: Spaces, open_embedder: Callable[[EmbeddingSpace], QueryEmbedder]) -> None:
        self._spaces = spaces
        self._open_embedder = open_embedder
        self._recorded: RecordedSpace | None = None
        self._current: SearchSpace | None = None
        self._fault: CauceError | None = _no_space()

    @property
    def fault(self) -> CauceError | None:
        """Why no search can run now, None when it can."""
        return self._fault

    def require(self) -> SearchSpace:
        """The space to search in.

        Raises:
            UnavailableError: ``SPACE_UNKNOWN`` while none is active, ``SCHEMA_MISSING`` before the migration;
                ``SPACE_MISMATCH`` or ``EMBEDDER_UNAVAILABLE`` when there is one whose queries cannot be embedded here.
        """
        if self._current is None:
            raise self._unavailable()
        return self._current

    @property
    def lexical(self) -> bool | None:
        """Whether words can be searched, None while no space is known."""
        return None if self._recorded is None else self._recorded.lexical

    def require_recorded(self) -> RecordedSpace:
        """The active space as it is recorded, whether or not its queries can be embedded here.

        Raises:
            UnavailableError: ``SPACE_UNKNOWN``, ``SCHEMA_MISSING``.
        """
        if self._recorded is None:
            raise self._unavailable()
        return self._recorded

    async def refresh(self) -> None:
        """Read the active space, and load its embedder when it is another one than before.

        Raises:
            ConfigurationError: the active space cannot be served by this process, as ``open_embedder`` says.
            UnavailableError: the database is not migrated, or the embedder does not answer; the next call tries again.
        """
        try:
            recorded = await self._spaces.find_active()
        except UnavailableError as fault:
            if self._recorded is None:
                self._fault = fault
            raise
        if self._fault is None and recorded is not None and self._is_same_space(recorded):
            self._recorded = recorded
            return
        if recorded is None:
            self._become(None, None, _no_space())
            return
        try:
            embedder = self._open_embedder(recorded.space)
            # The first call loads the model, so that no caller waits for it, and shows that the provider answers.
            await embedder.embed_query(recorded.space.name)
        except (ConfigurationError, UnavailableError) as fault:
            self._become(recorded, None, fault)
            raise
        self._become(recorded, SearchSpace(recorded.space_id, embedder), None)

    def _is_same_space(self, recorded: RecordedSpace) -> bool:
        known = self._recorded
        return known is not None and (known.space_id, known.space) == (recorded.space_id, recorded.space)

    def _unavailable(self) -> UnavailableError:
        fault = self._fault or _no_space()
        return UnavailableError(fault.code, fault.message, where=fault.where, remedy=fault.remedy)

    def _become(self, recorded: RecordedSpace | None, current: SearchSpace | None, fault: CauceError | None) -> None:
        self._recorded, self._current, self._fault = recorded, current, fault


def _no_space() -> UnavailableError:
    return UnavailableError(
        "SPACE_UNKNOWN",
        "no embedding space is active yet",
        remedy="start the embeddings service, which records its space; searches work as soon as it has",
    )
