"""Declarations of types of resources: what is read from a folder, and what is refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from services.chassis.kernel.errors import ConfigurationError
from services.chassis.postgres.templates import fill, identifier, literal
from services.chassis.resource_types import FieldKind, Overflow, load_resource_types

DECLARATION = """
description = "A machine."
reads = ["machine"]
max_characters = 100
overflow = "split"

[fields.maker]
kind = "text"
description = "Who made it."

[fields.parts]
kind = "references"
to = "machine"
max_length = 5
description = "What it is made of."
"""


def declare(folder: Path, declaration: str = DECLARATION, name: str = "machine") -> Path:
    type_folder = folder / name
    type_folder.mkdir(parents=True)
    (type_folder / "declaration.toml").write_text(declaration)
    (type_folder / "context.sql").write_text("SELECT 1")
    (type_folder / "text.md").write_text("# {name}")
    return folder


def refusal(folder: Path) -> tuple[str, str | None]:
    with pytest.raises(ConfigurationError) as caught:
        load_resource_types(folder)
    assert caught.value.code == "RESOURCE_TYPE_INVALID"
    return caught.value.message, caught.value.where


def test_a_type_is_what_its_folder_says(tmp_path: Path) -> None:
    machine = load_resource_types(declare(tmp_path))["machine"]
    maker, parts = machine.fields
    assert (maker.kind, maker.to, maker.max_length, maker.column_type) == (FieldKind.TEXT, None, 4_000, "text")
    assert (parts.kind, parts.to, parts.max_length, parts.column_type) == (
        FieldKind.REFERENCES,
        "machine",
        5,
        "bigint[]",
    )
    assert (machine.reads, machine.max_characters, machine.overflow) == (("machine",), 100, Overflow.SPLIT)


def test_names_of_tables_and_events_follow_from_the_name(tmp_path: Path) -> None:
    type_ = load_resource_types(declare(tmp_path, DECLARATION.replace("machine", "big_machine"), "big_machine"))[
        "big_machine"
    ]
    assert type_.event_stem == "BigMachine"
    assert str(type_.changed) == "cauce.catalog.BigMachineChanged.v1"
    assert str(type_.deleted) == "cauce.catalog.BigMachineDeleted.v1"
    assert type_.source_table == "module_big_machine_big_machine"
    assert type_.table == "module_embeddings_big_machine"
    assert type_.context_view == "module_embeddings_big_machine_context"


def test_every_part_of_a_recipe_tells_it_from_another(tmp_path: Path) -> None:
    recipes = set()
    reads_nothing = DECLARATION.replace('["machine"]', "[]")
    changes = {
        "context.sql": ["another"],
        "text.md": ["another"],
        "declaration.toml": [DECLARATION, DECLARATION.replace("= 100", "= 101"), reads_nothing],
    }
    for file, contents in changes.items():
        for position, content in enumerate(contents):
            folder = declare(tmp_path / f"{file}{position}")
            (folder / "machine" / file).write_text(content)
            recipes.add(load_resource_types(folder)["machine"].recipe)
    assert len(recipes) == 5


def test_folders_that_are_no_types_are_passed_over(tmp_path: Path) -> None:
    declare(tmp_path)
    (tmp_path / "__pycache__").mkdir()
    (tmp_path / ".git").mkdir()
    (tmp_path / "README.md").write_text("")
    assert list(load_resource_types(tmp_path)) == ["machine"]


@pytest.mark.parametrize(
    ("change", "by", "said", "where"),
    [
        ("overflow =", "overlfow =", "overflow must be given", ""),
        ('"split"', '"cut"', "overflow must be one of refuse, split", ""),
        ("= 100", "= 0", "max_characters must be at least 1", ""),
        ("= 100", "= true", "max_characters must be given, as int", ""),
        ("= 100", '= "100"', "max_characters must be given, as int", ""),
        ('"A machine."', '" "', "description is empty", ""),
        ('reads = ["machine"]', 'reads = ["machine", "machine"]', "reads must be a list of different names", ""),
        ('reads = ["machine"]', 'reads = ["engine"]', "no type 'engine' is declared", ": reads"),
        ('kind = "text"', 'kind = "json"', "kind must be one of text, integer", ": fields.maker"),
        ('kind = "text"', 'kind = "text"\nto = "machine"', "unknown entries: to", ": fields.maker"),
        ('kind = "text"', 'kind = "number"\nmax_length = 3', "unknown entries: max_length", ": fields.maker"),
        ('to = "machine"', 'to = "engine"', "no type 'engine' is declared", ": fields.parts.to"),
        ('to = "machine"', "", "to must be given", ": fields.parts"),
        ("[fields.maker]", "[fields.name]", "'name' is a column that every resource has", ": fields.name"),
        ("[fields.maker]", "[fields.Maker]", "a field's name is lower-case words", ": fields.Maker"),
        ("[fields.maker]", "[fields.'x\"; DROP TABLE a; --']", "a field's name is lower-case words", None),
        ("[fields.maker]", f"[fields.{'a' * 33}]", "at most 32 characters", None),
        ("[fields.maker]", "[[fields.maker]]", "a field is a table", ": fields.maker"),
        ("description", "color = 1\ndescription", "unknown entries: color", ""),
        ("reads", "= reads", "it cannot be read", ""),
    ],
)
def test_a_wrong_declaration_is_refused_with_its_place(
    tmp_path: Path, change: str, by: str, said: str, where: str | None
) -> None:
    message, place = refusal(declare(tmp_path, DECLARATION.replace(change, by, 1)))
    assert said in message
    assert where is None or place == f"machine/declaration.toml{where}"


@pytest.mark.parametrize(
    "name",
    ["Machine", "machine2", "_x_", "ma-chine", "machine_", "a__b", "x" * 25, "file", "unified", "machine_context"],
)
def test_a_name_that_could_not_be_a_table_of_its_own_is_refused(tmp_path: Path, name: str) -> None:
    if name.startswith("_"):
        declare(tmp_path)  # a folder that starts so is no type at all
        declare(tmp_path, name=name)
        assert list(load_resource_types(tmp_path)) == ["machine"]
    else:
        _, place = refusal(declare(tmp_path, name=name))
        assert place == name


@pytest.mark.parametrize("missing", ["context.sql", "text.md", "declaration.toml"])
def test_a_folder_must_be_whole(tmp_path: Path, missing: str) -> None:
    (declare(tmp_path) / "machine" / missing).unlink()
    _, place = refusal(tmp_path)
    assert place == f"machine/{missing}"


def test_a_folder_without_types_is_refused(tmp_path: Path) -> None:
    assert refusal(tmp_path)[0] == "no type of resource is declared in it"
    assert refusal(tmp_path / "nowhere")[1] == "CAUCE_RESOURCE_TYPES_DIR"


@pytest.mark.parametrize("name", ['a"b', "a b", "A", "", "1a", "a" * 64, "a;b", "ä"])
def test_sql_takes_no_name_that_needs_escaping(name: str) -> None:
    with pytest.raises(ValueError, match="not an identifier"):
        identifier(name)
    with pytest.raises(ValueError, match="not an identifier"):
        literal(name)


def test_a_template_takes_identifiers_where_it_names_them() -> None:
    assert (
        fill("SELECT * FROM {table} WHERE x = '{}'", {"table": identifier("t")}) == "SELECT * FROM \"t\" WHERE x = '{}'"
    )
    with pytest.raises(KeyError):
        fill("SELECT * FROM {table}", {})
