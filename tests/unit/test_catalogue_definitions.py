"""What a definition of a resource may say, and how a batch of them is cut into transactions."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.chassis.kernel.errors import InvalidInputError, NotFoundError
from services.chassis.kernel.scope import AccessScope
from services.chassis.resource_types import Field, FieldKind, Overflow, ResourceType
from services.files.application import import_resources
from services.files.application.import_resources import GROUP, ImportReport, ImportResources, Row
from services.files.domain.resource import (
    _READERS,
    Outcome,
    Resource,
    ResourceChange,
    ResourceDefinition,
    ResourceDeletion,
    define_resource,
)
from services.files.entrypoints.http.resources import ImportReportBody, _lines

LENGTHS = {FieldKind.TEXT: 10, FieldKind.TEXTS: 2, FieldKind.REFERENCES: 2}
TYPE = ResourceType(
    name="gauge",
    description="A type of this test, with a field of every kind.",
    fields=tuple(Field(kind.value, kind, "a field", max_length=LENGTHS.get(kind)) for kind in FieldKind),
    reads=(),
    max_characters=100,
    overflow=Overflow.REFUSE,
    folder=Path("nowhere"),
)
SCOPE = AccessScope("acme")


def test_every_kind_of_field_can_be_read() -> None:
    assert set(_READERS) == set(FieldKind)


def test_a_definition_keeps_what_was_sent() -> None:
    sent = {
        "name": "Caudal – entrada\u00a02",
        "text": "áéí\n\t🙂",
        "integer": -(2**63),
        "number": 3,
        "boolean": False,
        "timestamp": "2026-01-31T09:30:00.5+01:00",
        "reference": 2**63 - 1,
        "references": [3, 3],
        "texts": ["", "b"],
    }
    definition = define_resource(TYPE, 7, sent)
    assert definition.name == sent["name"]
    assert definition.values == {
        **{key: value for key, value in sent.items() if key != "name"},
        "timestamp": datetime(2026, 1, 31, 8, 30, 0, 500_000, UTC),
    }


def test_everything_may_be_left_out_and_null_is_the_same() -> None:
    nulls = dict.fromkeys(["name", *FieldKind])
    assert define_resource(TYPE, 7, {}) == define_resource(TYPE, 7, nulls)
    assert define_resource(TYPE, 7, {}) == ResourceDefinition(7, "gauge 7", dict.fromkeys(FieldKind))


@pytest.mark.parametrize(
    ("where", "value"),
    [
        ("name", 5),
        ("name", ""),
        ("name", " \u2003"),
        ("name", "x" * 256),
        ("name", "a\nb"),
        ("name", "a\u2028b"),
        ("name", "a\x00b"),
        ("name", "a\ud800"),
        ("text", ["a"]),
        ("text", "x" * 11),
        ("text", "\x00"),
        ("text", "\udfff"),
        ("integer", 1.0),
        ("integer", True),
        ("integer", "1"),
        ("integer", 2**63),
        ("integer", -(2**63) - 1),
        ("number", "1"),
        ("number", False),
        ("number", float("inf")),
        ("number", float("nan")),
        ("number", 10**400),
        ("number", 2**53 + 1),
        ("boolean", 0),
        ("boolean", "true"),
        ("timestamp", 0),
        ("timestamp", "yesterday"),
        ("timestamp", "2026-01-31"),
        ("timestamp", "2026-01-31T09:30:00"),
        ("timestamp", "0001-01-01T00:00:00+14:00"),
        ("timestamp", "2026-01-31T09:30:00.1234567Z"),
        ("reference", 0),
        ("reference", -1),
        ("reference", 2**63),
        ("reference", "1"),
        ("reference", True),
        ("references", 1),
        ("references", [1, 2, 3]),
        ("texts", "a"),
        ("texts", ["a", "b", "c"]),
    ],
)
def test_a_wrong_value_is_refused_with_its_field(where: str, value: Any) -> None:
    with pytest.raises(InvalidInputError) as caught:
        define_resource(TYPE, 7, {where: value})
    assert (caught.value.code, caught.value.where) == ("INVALID_RESOURCE", where)


@pytest.mark.parametrize(
    ("where", "value"), [("references", [1, 0]), ("references", [1, None]), ("texts", ["a", 1]), ("texts", ["a", "\0"])]
)
def test_a_wrong_item_of_a_list_is_refused_with_its_place(where: str, value: Any) -> None:
    with pytest.raises(InvalidInputError) as caught:
        define_resource(TYPE, 7, {where: value})
    assert caught.value.where == f"{where}[1]"


@pytest.mark.parametrize("resource_id", [0, -1, 2**63, 1.0, "1", None, True])
def test_what_is_no_id_is_refused(resource_id: Any) -> None:
    with pytest.raises(InvalidInputError) as caught:
        define_resource(TYPE, resource_id, {})
    assert (caught.value.code, caught.value.where) == ("INVALID_RESOURCE", "id")


@pytest.mark.parametrize("body", [None, [], "a", 1])
def test_what_is_no_object_is_refused(body: Any) -> None:
    with pytest.raises(InvalidInputError, match="a resource is a JSON object"):
        define_resource(TYPE, 7, body)


@pytest.mark.parametrize("name", ["unit", "id", "tenant_id", "Text", "\ud800", "x" * 5_000])
def test_an_unknown_field_is_refused_and_the_known_are_told(name: str) -> None:
    with pytest.raises(InvalidInputError, match="unknown field") as caught:
        define_resource(TYPE, 7, {"text": "a", name: 1})
    assert caught.value.remedy == f"known are: name, {', '.join(FieldKind)}"
    assert caught.value.where is not None
    assert caught.value.where.isascii()
    assert len(caught.value.where) < 100


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(st.characters(), max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=5,
)


@given(st.dictionaries(st.sampled_from(["name", "other", *FieldKind]), json_values))
def test_a_definition_is_storable_or_refused(body: dict[str, Any]) -> None:
    try:
        definition = define_resource(TYPE, 7, body)
    except InvalidInputError:
        return
    values = [value for value in definition.values.values() if not isinstance(value, datetime)]
    stored = json.dumps([definition.name, *values], ensure_ascii=False, allow_nan=False).encode()
    assert b"\\u0000" not in stored


@dataclass
class InMemoryResources:
    """The catalogue as a dictionary: implements the Resources port as far as an import needs it."""

    taken: frozenset[int] = frozenset()
    stored: dict[int, ResourceDefinition] = field(default_factory=dict)
    groups: list[list[int]] = field(default_factory=list)

    async def apply(
        self, scope: AccessScope, type_: ResourceType, changes: Sequence[ResourceChange]
    ) -> list[tuple[Outcome, Resource | None]]:
        assert scope == SCOPE
        ids = [change.resource_id for change in changes]
        assert len(set(ids)) == len(ids)
        self.groups.append(ids)
        return [(self._apply(change), None) for change in changes]

    def _apply(self, change: ResourceChange) -> Outcome:
        before = self.stored.get(change.resource_id)
        if isinstance(change, ResourceDeletion):
            self.stored.pop(change.resource_id, None)
            return Outcome.ABSENT if before is None else Outcome.DELETED
        if change.resource_id in self.taken:
            return Outcome.TAKEN
        self.stored[change.resource_id] = change
        return Outcome.CREATED if before is None else Outcome.UNCHANGED if before == change else Outcome.UPDATED

    async def find(self, scope: AccessScope, type_: ResourceType, resource_id: int) -> Resource | None:
        raise NotImplementedError

    async def list_after(self, scope: AccessScope, type_: ResourceType, *, after: int, limit: int) -> list[Resource]:
        raise NotImplementedError


async def imported(resources: InMemoryResources, *contents: Any, type_name: str = TYPE.name) -> ImportReport:
    async def rows() -> AsyncIterator[Row]:
        for line, content in enumerate(contents, start=1):
            yield Row(line, content)

    report = ImportReport()
    await ImportResources({TYPE.name: TYPE}, resources)(SCOPE, type_name, rows(), report)
    return report


async def test_rows_go_in_groups_of_different_resources_and_keep_their_order() -> None:
    resources = InMemoryResources()
    many = [{"id": number} for number in range(1, GROUP + 2)]

    report = await imported(resources, *many, {"id": GROUP + 1, "text": "a"}, {"id": GROUP + 1, "text": "b"})

    assert [len(group) for group in resources.groups] == [GROUP, 1, 1, 1]
    assert resources.stored[GROUP + 1].values["text"] == "b"
    assert report.outcomes == {Outcome.CREATED: GROUP + 1, Outcome.UPDATED: 2}


async def test_good_rows_go_on_when_others_are_bad() -> None:
    resources = InMemoryResources(taken=frozenset({6}))

    report = await imported(
        resources,
        {"id": 1},
        {"id": 0},
        {"text": "a"},
        {"id": 2, "text": 5},
        {"id": 3, "other": 1},
        [1],
        InvalidInputError("INVALID_REQUEST", "not valid JSON", where="row"),
        {"id": 4, "deleted": False},
        {"id": 4, "deleted": True, "text": "a"},
        {"id": "5"},
        {"id": 6},
        {"id": 7},
        {"id": 7, "deleted": True},
        {"id": 8, "deleted": True},
    )

    assert resources.stored.keys() == {1}
    assert report.outcomes == {Outcome.CREATED: 2, Outcome.DELETED: 1, Outcome.UNCHANGED: 1}
    assert report.applied == 4
    assert report.failed == 10
    assert [(error.line, error.resource_id, error.code, error.where) for error in report.errors] == [
        (2, 0, "INVALID_RESOURCE", "id"),
        (3, None, "INVALID_RESOURCE", "id"),
        (4, 2, "INVALID_RESOURCE", "text"),
        (5, 3, "INVALID_RESOURCE", "other"),
        (6, None, "INVALID_RESOURCE", "row"),
        (7, None, "INVALID_REQUEST", "row"),
        (8, 4, "INVALID_RESOURCE", "deleted"),
        (9, 4, "INVALID_RESOURCE", "deleted"),
        (10, None, "INVALID_RESOURCE", "id"),
        (11, 6, "RESOURCE_ID_TAKEN", "id"),
    ]


async def test_errors_beyond_those_that_are_listed_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(import_resources, "MAX_LISTED_ERRORS", 2)

    report = ImportReportBody.of(await imported(InMemoryResources(), {}, {"id": 1}, {}, {}, {}))

    assert (report.created, report.failed, len(report.errors), report.errors_not_listed) == (1, 4, 2, 2)


async def test_an_unknown_type_is_refused_before_a_row_is_read() -> None:
    with pytest.raises(NotFoundError) as caught:
        await imported(InMemoryResources(), {"id": 1}, type_name="gouge")
    assert (caught.value.code, caught.value.remedy) == ("UNKNOWN_RESOURCE_TYPE", "known are: gauge")


async def lines(content: bytes, chunk_bytes: int) -> list[bytes | None]:
    async def chunks() -> AsyncIterator[bytes]:
        for start in range(0, len(content), chunk_bytes):
            yield content[start : start + chunk_bytes]

    return [line async for line in _lines(chunks(), max_bytes=5)]


@given(st.binary(max_size=40), st.integers(1, 20))
def test_lines_do_not_depend_on_how_the_body_arrives(content: bytes, chunk_bytes: int) -> None:
    content = content.replace(b"0", b"\n")
    parts = content.split(b"\n")
    expected = [line if len(line) <= 5 else None for line in (parts[:-1] if parts[-1] == b"" else parts)]
    assert asyncio.run(lines(content, chunk_bytes)) == expected
