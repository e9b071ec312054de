"""Upkeep: ends uploads that stopped, and deletes the objects that no file points to."""

from __future__ import annotations

from dataclasses import dataclass

from services.files.application.ports import ObjectStorage, Upkeep


@dataclass(frozen=True, slots=True)
class CollectGarbage:
    """The use case. Run it again and again; any number may run at once."""

    upkeep: Upkeep
    storage: ObjectStorage

    async def __call__(self) -> tuple[int, int]:
        """Do all that is due. Return how many uploads were ended and how many objects deleted.

        An object that cannot be deleted now comes up again.

        Raises:
            UnavailableError: ``STORAGE_UNAVAILABLE``.
        """
        ended = deleted = 0
        while batch := await self.upkeep.end_overdue_uploads():
            ended += batch
        while keys := await self.upkeep.claim_garbage():
            for key in keys:
                await self.storage.delete(key)
            await self.upkeep.forget_garbage(keys)
            deleted += len(keys)
        return ended, deleted
