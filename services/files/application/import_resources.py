"""Takes a stream of resources of one type: good rows go on when others are bad, and memory does not grow with them.

Rows are applied in groups, each in one transaction with its events, in the order in which they come. A stream that
breaks off leaves what was applied; sending it again does no harm, for what is there already is not changed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from services.chassis.kernel.errors import CauceError, InvalidInputError
from services.chassis.kernel.scope import AccessScope
from services.chassis.resource_types import ResourceType
from services.files.application.ports import Resources
from services.files.application.put_resource import find_type
from services.files.domain.resource import (
    Outcome,
    ResourceChange,
    ResourceDeletion,
    check_resource_id,
    define_resource,
    resource_id_taken,
)

GROUP = 500
"""Rows of a transaction."""
GROUP_BYTES = 8 * 1024 * 1024
"""Bytes of a transaction's rows as they came: what is in memory at once."""
MAX_LISTED_ERRORS = 50_000
"""Errors that a report lists; more are counted."""


@dataclass(frozen=True, slots=True)
class Row:
    """A row as it came: its 1-based line, what was read from it or why nothing could be, and its bytes."""

    line: int
    content: Any | CauceError
    size: int = 0


@dataclass(frozen=True, slots=True)
class RowError:
    """A row that was not applied. ``resource_id`` is None where the row names none."""

    line: int
    resource_id: int | None
    code: str
    detail: str
    where: str | None


@dataclass(slots=True)
class ImportReport:
    """What became of the rows so far. A deletion of what is not there counts as unchanged."""

    outcomes: Counter[Outcome] = field(default_factory=Counter)
    failed: int = 0
    errors: list[RowError] = field(default_factory=list)

    @property
    def applied(self) -> int:
        """Rows that are as they were sent."""
        return self.outcomes.total()

    def fail(self, line: int, resource_id: int | None, error: CauceError) -> None:
        """Count a bad row, and list it while there is room."""
        self.failed += 1
        if len(self.errors) < MAX_LISTED_ERRORS:
            # The error itself would keep alive what it passed through.
            self.errors.append(RowError(line, resource_id, error.code, error.message, error.where))


@dataclass(frozen=True, slots=True)
class ImportResources:
    """The use case."""

    types: Mapping[str, ResourceType]
    resources: Resources

    async def __call__(
        self, scope: AccessScope, type_name: str, rows: AsyncIterator[Row], report: ImportReport
    ) -> None:
        """Apply the rows, each an object with ``id`` and a definition, or with ``"deleted": true``.

        Args:
            scope: whose resources.
            type_name: their type.
            rows: may raise; what came before is applied or dropped in groups.
            report: filled on the way, so that it tells how far it went when this raises.

        Raises:
            NotFoundError: ``UNKNOWN_RESOURCE_TYPE``, before a row is asked for.
        """
        type_ = find_type(self.types, type_name)
        group: dict[int, tuple[int, ResourceChange]] = {}
        size = 0
        async for row in rows:
            try:
                change = _read(type_, row.content)
            except CauceError as error:
                report.fail(row.line, _id_of(row.content), error)
                continue
            # A transaction changes a resource once: a second row of the same one waits for the next.
            if change.resource_id in group or len(group) == GROUP or size + row.size > GROUP_BYTES:
                await self._apply(scope, type_, group, report)
                size = 0
            group[change.resource_id] = (row.line, change)
            size += row.size
        await self._apply(scope, type_, group, report)

    async def _apply(
        self,
        scope: AccessScope,
        type_: ResourceType,
        group: dict[int, tuple[int, ResourceChange]],
        report: ImportReport,
    ) -> None:
        """Apply the group, and empty it."""
        if not group:
            return
        results = await self.resources.apply(scope, type_, [change for _, change in group.values()])
        for (line, change), (outcome, _) in zip(group.values(), results, strict=True):
            if outcome is Outcome.TAKEN:
                report.fail(line, change.resource_id, resource_id_taken())
            else:
                report.outcomes[Outcome.UNCHANGED if outcome is Outcome.ABSENT else outcome] += 1
        group.clear()


def _read(type_: ResourceType, content: Any | CauceError) -> ResourceChange:
    if isinstance(content, CauceError):
        raise content
    if not isinstance(content, dict):
        raise InvalidInputError("INVALID_RESOURCE", "a row is a JSON object", where="row")
    body = dict(content)
    resource_id = check_resource_id(body.pop("id", None))
    if "deleted" not in body:
        return define_resource(type_, resource_id, body)
    if body.keys() != {"deleted"} or body["deleted"] is not True:
        raise InvalidInputError("INVALID_RESOURCE", "a deletion has an id and true, nothing else", where="deleted")
    return ResourceDeletion(resource_id)


def _id_of(content: Any) -> int | None:
    id_ = content.get("id") if isinstance(content, dict) else None
    return id_ if type(id_) is int else None
