"""A fake of the FileWork port. The contract suite holds it against the real tables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from uuid import uuid4

from services.chassis.models.space import Vector
from services.embeddings.application.ports import EmbeddedChunk
from services.embeddings.domain.enrichment import ImageDescription
from services.embeddings.domain.errors import LeaseLostError
from services.embeddings.domain.file_work import ClaimedFile, FileContext, FileResult


@dataclass
class InMemoryFileWork:
    """Keeps what was done with claims, by name of the operation."""

    done: list[tuple[object, ...]] = field(default_factory=list)
    lost: set[int] = field(default_factory=set)

    async def claim(self, limit: int, *, large: int | None = None) -> list[ClaimedFile]:
        return []

    async def renew(self, claim: ClaimedFile) -> None:
        self._fenced(claim, "renew")

    async def report(self, claim: ClaimedFile, stage: str, done: int = 0, total: int = 0) -> None:
        self._fenced(claim, "report", stage, done, total)

    async def keep(self, claim: ClaimedFile, space_id: int, vectors: Mapping[bytes, Vector]) -> None:
        self.done.append(("keep", len(vectors)))

    async def keep_descriptions(
        self, claim: ClaimedFile, describer: str, descriptions: Mapping[str, ImageDescription]
    ) -> None:
        self.done.append(("keep_descriptions", len(descriptions)))

    async def complete(self, claim: ClaimedFile, result: FileResult, chunks: Sequence[EmbeddedChunk]) -> None:
        self._fenced(claim, "complete", result, chunks)

    async def fail(self, claim: ClaimedFile, code: str, message: str) -> None:
        self._fenced(claim, "fail", code, message)

    async def give_back(
        self, claim: ClaimedFile, code: str, message: str, *, delay_seconds: float, counts: bool
    ) -> None:
        self.done.append(("give_back", code, delay_seconds, counts))

    async def release(self, claim: ClaimedFile) -> None:
        self.done.append(("release",))

    async def set_aside(self, claim: ClaimedFile) -> None:
        self.done.append(("set_aside",))

    async def forget(self, claim: ClaimedFile) -> None:
        self._fenced(claim, "forget")

    def settled(self) -> list[tuple[object, ...]]:
        """What became of the claim, without renewals and progress."""
        return [entry for entry in self.done if entry[0] not in ("renew", "report", "keep")]

    def _fenced(self, claim: ClaimedFile, *entry: object) -> None:
        if claim.file_id in self.lost:
            raise LeaseLostError
        self.done.append(entry)


def claimed(*, attempts: int = 1, size: int = 10) -> ClaimedFile:
    """A claim of file 1."""
    context = FileContext("text/plain", size, "key", 1)
    return ClaimedFile(1, "default", "nota.txt", 1, attempts, uuid4(), context)
