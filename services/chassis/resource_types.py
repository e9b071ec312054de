"""The types of resources, read from their folders: the one place where a type is described.

A folder holds ``declaration.toml``, ``context.sql``, ``text.md`` and ``examples/*.json``. Everything else that names
a type (tables, views, events, routes, search) is derived from what is read here. Names of types and fields reach SQL
as identifiers, so they are checked strictly: what is loaded is safe to write into a statement between quotes.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from hashlib import sha256
from pathlib import Path
from types import MappingProxyType
from typing import Any, TypeVar

from contracts.events import catalog
from contracts.events.envelope import EventType
from services.chassis.kernel.errors import ConfigurationError

DEFAULT_FOLDER = Path(__file__).parents[1] / "embeddings" / "resource_types"

MAX_NAME = 255
"""Characters of a resource's name."""

_TYPE_NAME = re.compile(r"[a-z]+(_[a-z]+)*")
_FIELD_NAME = re.compile(r"[a-z][a-z0-9]*(_[a-z0-9]+)*")
# PostgreSQL cuts identifiers at 63 bytes: module_<type>_<type>_<field> must fit.
_MAX_TYPE_NAME = 24
_MAX_FIELD_NAME = 32

# Tables and views that exist already would be taken for a type's own.
_RESERVED_TYPES = frozenset(
    {
        *(
            "dependency",
            "index_change",
            "kept_vector",
            "lexical_build",
            "lexical_index",
            "model_quota",
            "outbox",
            "recipe",
            "search",
        ),
        *("space", "space_lease", "unified"),
    }
)
_RESERVED = re.compile(r"(files?|resource)(_.*)?|.*_(context|outbox|read|status)")
_RESERVED_FIELDS = frozenset(
    {"created_at", "entity_id", "entity_type", "id", "name", "reads", "revision", "tenant", "tenant_id", "type"}
    | {"deleted", "updated_at"}
    | {"cmax", "cmin", "ctid", "tableoid", "xmax", "xmin"}
)


class FieldKind(StrEnum):
    """What a field holds. Every field may be absent."""

    TEXT = "text"
    INTEGER = "integer"
    NUMBER = "number"
    BOOLEAN = "boolean"
    TIMESTAMP = "timestamp"
    REFERENCE = "reference"
    REFERENCES = "references"
    TEXTS = "texts"


class Overflow(StrEnum):
    """What happens to a text that is longer than the type allows: the resource fails, or the text is embedded in parts.

    The vector of a split text is the mean of its parts' vectors, scaled to unit length. Nothing is ever cut.
    """

    REFUSE = "refuse"
    SPLIT = "split"


_COLUMN_TYPES = {
    FieldKind.TEXT: "text",
    FieldKind.INTEGER: "bigint",
    FieldKind.NUMBER: "double precision",
    FieldKind.BOOLEAN: "boolean",
    FieldKind.TIMESTAMP: "timestamp with time zone",
    FieldKind.REFERENCE: "bigint",
    FieldKind.REFERENCES: "bigint[]",
    FieldKind.TEXTS: "text[]",
}
_LENGTHS = {FieldKind.TEXT: 4_000, FieldKind.TEXTS: 100, FieldKind.REFERENCES: 1_000}


@dataclass(frozen=True, slots=True)
class Field:
    """A field of a type, besides the name that every resource has.

    Attributes:
        name: as in a request's body and as the column of the source table.
        kind: what it holds.
        to: the type that a reference names, None for other kinds. The resource named need not exist (yet).
        max_length: the most characters of a text, or items of a list; None for other kinds. Each item of ``texts``
            has at most ``MAX_NAME`` characters.
        description: what it means, for people and for models.
    """

    name: str
    kind: FieldKind
    description: str
    to: str | None = None
    max_length: int | None = None

    @property
    def column_type(self) -> str:
        """The column's type, as PostgreSQL's ``format_type`` writes it."""
        return _COLUMN_TYPES[self.kind]


@dataclass(frozen=True, slots=True)
class ResourceType:
    """A type of resource.

    Attributes:
        name: lower-case words joined by ``_``.
        description: what such a resource is, for people and for models.
        fields: in the order of the declaration.
        reads: the types whose events change the text of resources of this type.
        max_characters: the longest text that is embedded in one piece.
        overflow: what happens to a longer one.
        folder: where all of it stands.
        context_sql: the SELECT of the context view.
        text_template: the template of the resource's Markdown text.
    """

    name: str
    description: str
    fields: tuple[Field, ...]
    reads: tuple[str, ...]
    max_characters: int
    overflow: Overflow
    folder: Path
    context_sql: str = field(default="", repr=False)
    text_template: str = field(default="", repr=False)

    @property
    def event_stem(self) -> str:
        """The name in PascalCase, as in its events."""
        return catalog.stem_of(self.name)

    @property
    def changed(self) -> EventType:
        """The event type of a creation or change."""
        return catalog.changed(self.name)

    @property
    def deleted(self) -> EventType:
        """The event type of a deletion."""
        return catalog.deleted(self.name)

    @property
    def source_table(self) -> str:
        """The catalogue's table; the files service writes it."""
        return f"module_{self.name}_{self.name}"

    @property
    def table(self) -> str:
        """The table of vectors; the embeddings service writes it."""
        return f"module_embeddings_{self.name}"

    @property
    def context_view(self) -> str:
        """The view of everything about a resource that carries meaning."""
        return f"module_embeddings_{self.name}_context"

    @property
    def recipe(self) -> str:
        """Tells one way of making texts of this type from another: a text of another recipe is out of date."""
        parts = (self.context_sql, self.text_template, str(self.max_characters), self.overflow, *sorted(self.reads))
        return sha256("\0".join(parts).encode()).hexdigest()[:16]


def load_resource_types(folder: Path = DEFAULT_FOLDER) -> Mapping[str, ResourceType]:
    """Read every type in ``folder``, by name, in alphabetical order.

    Raises:
        ConfigurationError: ``RESOURCE_TYPE_INVALID``, with the file and the entry that is wrong.
    """
    if not folder.is_dir():
        raise ConfigurationError(
            "RESOURCE_TYPE_INVALID",
            f"there is no folder of resource types at {folder}",
            where="CAUCE_RESOURCE_TYPES_DIR",
            remedy="name a folder with one folder for each type",
        )
    names = sorted(entry.name for entry in folder.iterdir() if entry.is_dir() and entry.name[0] not in "._")
    if not names:
        raise _invalid("no type of resource is declared in it", str(folder))
    types = {name: _load(folder / name) for name in names}
    for type_ in types.values():
        _check_names_known(type_, types)
    return MappingProxyType(types)


def _load(folder: Path) -> ResourceType:
    name = folder.name
    where = f"{name}/declaration.toml"
    _check_type_name(name)
    context_sql, text_template = (_read(folder / file) for file in ("context.sql", "text.md"))
    try:
        declaration = tomllib.loads(_read(folder / "declaration.toml"))
    except tomllib.TOMLDecodeError as error:
        raise _invalid(f"it cannot be read: {error}", where) from error
    entries = _Entries(declaration, where)
    fields = entries.take("fields", dict)
    type_ = ResourceType(
        name=name,
        description=entries.text("description"),
        fields=tuple(_field(each, fields[each], f"{where}: fields.{each}") for each in fields),
        reads=entries.texts("reads"),
        max_characters=entries.count("max_characters"),
        overflow=entries.choice("overflow", Overflow),
        folder=folder,
        context_sql=context_sql,
        text_template=text_template,
    )
    entries.require_nothing_left()
    return type_


def _read(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise _invalid(f"it cannot be read: {error}", f"{file.parent.name}/{file.name}") from error


def _field(name: str, declaration: object, where: str) -> Field:
    if len(name) > _MAX_FIELD_NAME or _FIELD_NAME.fullmatch(name) is None:
        raise _invalid(f"a field's name is lower-case words joined by _, at most {_MAX_FIELD_NAME} characters", where)
    if name in _RESERVED_FIELDS:
        raise _invalid(f"{name!r} is a column that every resource has", where)
    if not isinstance(declaration, dict):
        raise _invalid("a field is a table with kind and description", where)
    entries = _Entries(declaration, where)
    kind = entries.choice("kind", FieldKind)
    is_reference = kind in (FieldKind.REFERENCE, FieldKind.REFERENCES)
    result = Field(
        name=name,
        kind=kind,
        description=entries.text("description"),
        to=entries.text("to") if is_reference else None,
        max_length=entries.count("max_length", default=_LENGTHS[kind]) if kind in _LENGTHS else None,
    )
    entries.require_nothing_left()
    return result


_Choice = TypeVar("_Choice", bound=StrEnum)


class _Entries:
    """The entries of a table in a declaration, each taken once and checked."""

    def __init__(self, entries: Mapping[str, object], where: str) -> None:
        self._entries = dict(entries)
        self._where = where

    def take(self, key: str, kind: type, default: object = None) -> Any:
        value = self._entries.pop(key, default)
        if not isinstance(value, kind) or isinstance(value, bool):
            raise _invalid(f"{key} must be given, as {kind.__name__}", self._where)
        return value

    def text(self, key: str) -> str:
        value: str = self.take(key, str)
        if not value.strip():
            raise _invalid(f"{key} is empty", self._where)
        return value.strip()

    def texts(self, key: str) -> tuple[str, ...]:
        values = self.take(key, list, [])
        if not all(isinstance(value, str) for value in values) or len(set(values)) < len(values):
            raise _invalid(f"{key} must be a list of different names", self._where)
        return tuple(values)

    def count(self, key: str, default: int | None = None) -> int:
        value: int = self.take(key, int, default)
        if value < 1:
            raise _invalid(f"{key} must be at least 1", self._where)
        return value

    def choice(self, key: str, kind: type[_Choice]) -> _Choice:
        value = self.take(key, str)
        if value not in list(kind):
            raise _invalid(f"{key} must be one of {', '.join(kind)}, not {value!r}", self._where)
        return kind(value)

    def require_nothing_left(self) -> None:
        if self._entries:
            raise _invalid(f"unknown entries: {', '.join(sorted(self._entries))}", self._where)


def _check_type_name(name: str) -> None:
    if len(name) > _MAX_TYPE_NAME or _TYPE_NAME.fullmatch(name) is None:
        raise _invalid(f"a type's name is words of a to z joined by _, at most {_MAX_TYPE_NAME} characters", name)
    if name in _RESERVED_TYPES or _RESERVED.fullmatch(name):
        raise _invalid("tables or views of this name exist already", name)


def _check_names_known(type_: ResourceType, types: Mapping[str, ResourceType]) -> None:
    where = f"{type_.name}/declaration.toml"
    for each in type_.fields:
        if each.to is not None and each.to not in types:
            raise _invalid(f"no type {each.to!r} is declared", f"{where}: fields.{each.name}.to")
    for read in type_.reads:
        if read not in types:
            raise _invalid(f"no type {read!r} is declared", f"{where}: reads")


def _invalid(message: str, where: str) -> ConfigurationError:
    return ConfigurationError("RESOURCE_TYPE_INVALID", message, where=where, remedy="correct the declaration")
