"""Upkeep: ends uploads that stopped, and deletes the objects that no file points to."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime

from services.files.application.ports import ObjectStorage, Upkeep


@dataclass(slots=True)
class CollectGarbage:
    """The use case. Run it again and again; any number may run at once.

    What is due was so at the run before: when the database was away, uploads under way could not ask for more time,
    and have the time between two runs to do so.
    """

    upkeep: Upkeep
    storage: ObjectStorage
    _ran_at: datetime | None = field(default=None, init=False)

    async def __call__(self) -> tuple[int, int]:
        """Do all that is due. Return how many uploads were ended and how many objects deleted.

        Raises:
            UnavailableError: ``STORAGE_UNAVAILABLE`` when an object could not be deleted; it comes up again.
        """
        due, self._ran_at = self._ran_at, await self.upkeep.now()
        if due is None:
            return 0, 0
        ended = deleted = 0
        while batch := await self.upkeep.end_overdue_uploads(due):
            ended += batch
        while keys := await self.upkeep.claim_garbage(due):
            await self._delete(keys)
            deleted += len(keys)
        return ended, deleted

    async def _delete(self, keys: Sequence[str]) -> None:
        """Delete the objects, each whatever becomes of the others, then raise the first fault."""
        results = await asyncio.gather(*(self.storage.delete(key) for key in keys), return_exceptions=True)
        await self.upkeep.forget_garbage([key for key, fault in zip(keys, results, strict=True) if fault is None])
        for fault in results:
            if fault is not None:
                raise fault
