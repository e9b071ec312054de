"""A resource of the catalogue: an id that its source gave it, a name, and the fields that its type declares.

Ids are the source's own and count for a type across all tenants: an id belongs to the tenant that put it first, until
it is deleted. What is stored of a definition is what was sent; nothing is cut, trimmed or rounded to fit.
"""

from __future__ import annotations

import math
import re
import unicodedata
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any, Protocol, TypeAlias

from services.chassis.kernel.errors import CauceError, ConflictError, InvalidInputError, NotFoundError

MAX_RESOURCE_ID = 2**63 - 1
MAX_NAME_CHARACTERS = 255

_INTEGERS = range(-(2**63), 2**63)
_MAX_SHOWN = 60
_TOO_FINE = re.compile(r"[.,][0-9]{7}")
_UNPRINTABLE = {"Cc", "Cs", "Zl", "Zp"}


class DeclaredField(Protocol):
    """A field as the type declares it: its name, its kind and, for texts and lists, how long it may be."""

    @property
    def name(self) -> str:
        """As in a request's body."""

    @property
    def kind(self) -> StrEnum:
        """What it holds."""

    @property
    def max_length(self) -> int | None:
        """The most characters of a text, or items of a list."""


class DeclaredType(Protocol):
    """A type of resource."""

    @property
    def name(self) -> str:
        """As in addresses."""

    @property
    def fields(self) -> Sequence[DeclaredField]:
        """What a resource may have besides its name."""


@dataclass(frozen=True, slots=True)
class ResourceDefinition:
    """What a resource is to be. Make it with ``define_resource``.

    Attributes:
        name: 1 to 255 characters.
        values: every field that the type declares, None where it is absent; times in UTC.
    """

    resource_id: int
    name: str
    values: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class ResourceDeletion:
    """A resource is to be gone."""

    resource_id: int


ResourceChange: TypeAlias = ResourceDefinition | ResourceDeletion


@dataclass(frozen=True, slots=True)
class Resource:
    """A resource as it is stored.

    Attributes:
        definition: what was put.
        revision: grows with every change, over all resources.
    """

    definition: ResourceDefinition
    revision: int
    created_at: datetime
    updated_at: datetime


class Outcome(StrEnum):
    """What became of a change. Each of the first three is announced by an event, the others change nothing."""

    CREATED = "CREATED"
    UPDATED = "UPDATED"
    DELETED = "DELETED"
    UNCHANGED = "UNCHANGED"
    ABSENT = "ABSENT"
    """There was nothing to delete."""
    TAKEN = "TAKEN"
    """The id is another tenant's."""


def define_resource(type_: DeclaredType, resource_id: int, body: Any) -> ResourceDefinition:
    """Check a definition against its type. ``null`` is the same as absence; without a name it is ``<type> <id>``.

    Args:
        type_: the type, with its fields.
        resource_id: 1 to 2^63-1.
        body: the definition as parsed JSON: an object with ``name`` and fields, all optional.

    Raises:
        InvalidInputError: ``INVALID_RESOURCE``, with the field that is wrong.
    """
    check_resource_id(resource_id)
    if not isinstance(body, dict):
        raise _invalid("a resource is a JSON object", "body")
    declared = {field.name: field for field in type_.fields}
    values: dict[str, Any] = dict.fromkeys(declared)
    for key, value in body.items():
        if key in declared:
            values[key] = _read(value, key, declared[key])
        elif key != "name":
            raise _unknown_field(key, declared)
    name = body.get("name")
    return ResourceDefinition(resource_id, f"{type_.name} {resource_id}" if name is None else _name(name), values)


def check_resource_id(value: Any, where: str = "id") -> int:
    """Return the id if it is one.

    Raises:
        InvalidInputError: ``INVALID_RESOURCE``.
    """
    return _identifier(value, where)


def unknown_resource_type(name: str, known: Iterable[str]) -> CauceError:
    """No type of that name is declared."""
    return NotFoundError(
        "UNKNOWN_RESOURCE_TYPE",
        f"there is no type of resource {_shown(name)!r}",
        where="type",
        remedy=f"known are: {', '.join(known)}",
    )


def resource_not_found(resource_id: int) -> CauceError:
    """The type has no resource of that id that the caller may see."""
    return NotFoundError(
        "RESOURCE_NOT_FOUND", f"there is no resource {resource_id} of this type", where="id", remedy="list the type"
    )


def resource_id_taken() -> CauceError:
    """The id cannot be used by this caller. That it is another tenant's is all that could be told, and is not."""
    return ConflictError("RESOURCE_ID_TAKEN", "the id is not free", where="id", remedy="use another id")


def _unknown_field(name: str, declared: Iterable[str]) -> InvalidInputError:
    known = ", ".join(["name", *declared])
    shown = _shown(name)
    return InvalidInputError("INVALID_RESOURCE", f"unknown field {shown!r}", where=shown, remedy=f"known are: {known}")


def _name(value: Any) -> str:
    name = _text(value, "name", MAX_NAME_CHARACTERS)
    if not name.strip():
        raise _invalid("the name is blank; leave it out where there is none", "name")
    if not name.isprintable() and any(unicodedata.category(character) in _UNPRINTABLE for character in name):
        raise _invalid("the name holds a control character or a line separator", "name")
    return name


def _read(value: Any, where: str, field: DeclaredField) -> Any:
    return None if value is None else _READERS[field.kind](value, where, field.max_length)


def _text(value: Any, where: str, max_length: int | None) -> str:
    if not isinstance(value, str):
        raise _invalid("it must be text", where)
    if max_length is not None and len(value) > max_length:
        raise _invalid(f"it has {len(value)} characters; at most {max_length} are allowed", where)
    if "\x00" in value:
        raise _invalid("it holds a NUL character", where)
    try:
        value.encode()
    except UnicodeEncodeError as error:
        raise _invalid("it holds half of a surrogate pair", where) from error
    return value


def _integer(value: Any, where: str, _: int | None = None) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or value not in _INTEGERS:
        raise _invalid("it must be an integer from -2^63 to 2^63-1", where)
    return value


def _number(value: Any, where: str, _: int | None = None) -> float:
    if isinstance(value, int | float) and not isinstance(value, bool):
        with suppress(OverflowError):
            number = float(value)
            if math.isfinite(number) and number == value:
                return number
    raise _invalid("it must be a finite number; an integer beyond 2^53 only where it is a double as well", where)


def _boolean(value: Any, where: str, _: int | None = None) -> bool:
    if not isinstance(value, bool):
        raise _invalid("it must be true or false", where)
    return value


def _timestamp(value: Any, where: str, _: int | None = None) -> datetime:
    with suppress(TypeError, ValueError, OverflowError):
        moment = datetime.fromisoformat(value)
        if moment.tzinfo is not None and _TOO_FINE.search(value) is None:
            return moment.astimezone(UTC)
    raise _invalid("it must be a time with its offset from UTC, as in 2026-01-31T09:30:00.123456+01:00", where)


def _identifier(value: Any, where: str, _: int | None = None) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not 0 < value <= MAX_RESOURCE_ID:
        raise _invalid("it must be an id: an integer from 1 to 2^63-1", where)
    return value


def _list(item: Callable[[Any, str], Any]) -> Callable[[Any, str, int | None], list[Any]]:
    def read(value: Any, where: str, max_length: int | None) -> list[Any]:
        if not isinstance(value, list):
            raise _invalid("it must be a list", where)
        if max_length is not None and len(value) > max_length:
            raise _invalid(f"it has {len(value)} items; at most {max_length} are allowed", where)
        return [item(one, f"{where}[{position}]") for position, one in enumerate(value)]

    return read


_READERS: Mapping[str, Callable[[Any, str, int | None], Any]] = {
    "text": _text,
    "integer": _integer,
    "number": _number,
    "boolean": _boolean,
    "timestamp": _timestamp,
    "reference": _identifier,
    "references": _list(_identifier),
    "texts": _list(lambda value, where: _text(value, where, MAX_NAME_CHARACTERS)),
}


def _invalid(message: str, where: str) -> InvalidInputError:
    return InvalidInputError("INVALID_RESOURCE", message, where=where)


def _shown(text: str) -> str:
    """A name from outside, short and in printable characters only."""
    return ascii(text if len(text) <= _MAX_SHOWN else f"{text[:_MAX_SHOWN]}...")[1:-1]
