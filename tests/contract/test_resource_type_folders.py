"""A type of resource is one folder: its examples hold, its view serves its template, its name stands nowhere else."""

from __future__ import annotations

import ast
import io
import json
import re
import tokenize
from collections.abc import Iterable, Iterator
from pathlib import Path

import asyncpg
import pytest

from services.chassis.resource_types import DEFAULT_FOLDER, ResourceType, load_resource_types
from services.embeddings.application.text_recipes import build_recipes
from tests.support.postgres import Database

ROOT = Path(__file__).parents[2]
TYPES = load_resource_types()
RECIPES = build_recipes(TYPES)
EXAMPLES = sorted(DEFAULT_FOLDER.glob("*/examples/*.json"))

# Words that English and programmers use for other things. In code they count where they can only be the type's name:
# as a text of their own, or within the name of a table or an event. The rest of the names count wherever code has them.
COMMON_WORDS = frozenset({"group", "query", "rule", "tag", "user", "variable"})

# Texts of their own that are another thing: the parameter of a search, and who speaks to a language model, are called
# so on the wire.
OTHER_THINGS = {
    *(("services/search", "query"), ("cli", "query"), ("services/chassis/http", "query")),
    *(("services/chassis/models", "query"), ("services/search", "user"), ("services/chassis/models", "user")),
    ("cli/measuring", "user"),
}


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: f"{path.parents[1].name}-{path.stem}")
def test_every_example_gives_its_exact_text(path: Path) -> None:
    example = json.loads(path.read_text(encoding="utf-8"))
    recipe = RECIPES[path.parents[1].name]
    assert recipe.text(example["context"]["entity_id"], example["context"]) == example["text"]


@pytest.mark.parametrize("type_", TYPES.values(), ids=lambda type_: type_.name)
def test_every_type_shows_a_full_resource_and_one_of_which_only_the_name_is_known(type_: ResourceType) -> None:
    contexts = {path.stem: json.loads(path.read_text())["context"] for path in (type_.folder / "examples").iterdir()}
    assert {"full", "name_only"} <= set(contexts)
    names = RECIPES[type_.name].template.names
    for context in contexts.values():
        assert set(context) == names | {"entity_id"}
    assert not any(value in (None, "", []) for value in contexts["full"].values())
    assert {name for name, value in contexts["name_only"].items() if value} == {"entity_id", "name"}


async def test_every_context_view_serves_its_template_and_reads_what_it_declares(database: Database) -> None:
    connection = await asyncpg.connect(database.admin_url)
    for type_ in TYPES.values():
        statement = await connection.prepare(f"SELECT * FROM {type_.context_view}")
        columns = {attribute.name for attribute in statement.get_attributes()}
        assert RECIPES[type_.name].template.names <= columns, type_.name
        assert not any(column.startswith("stored_") for column in columns), type_.name
        read = {name for name in TYPES if f"'{name}:'" in type_.context_sql}
        assert read == set(type_.reads), type_.name
        tables = {name for name, other in TYPES.items() if re.search(rf"\b{other.source_table}\b", type_.context_sql)}
        assert tables - {type_.name} <= set(type_.reads), type_.name
    await connection.close()


async def test_every_context_stays_within_the_tenant(database: Database) -> None:
    """Each resource refers to one of every type of another tenant, whose text must show nothing of it."""
    connection = await asyncpg.connect(database.admin_url)
    for type_ in TYPES.values():
        references = {one.name: "{1}" if one.column_type == "bigint[]" else 1 for one in type_.fields if one.to}
        for resource_id, tenant in ((1, "theirs"), (2, "ours")):
            columns = "".join(f', "{name}"' for name in references)
            values = "".join(f", '{value}'" for value in references.values())
            await connection.execute(
                f"INSERT INTO {type_.source_table} (id, tenant_id, name{columns})"
                f" VALUES ({resource_id}, '{tenant}', 'name of {tenant}'{values})"
            )
    for type_ in TYPES.values():
        row = await connection.fetchrow(f"SELECT * FROM {type_.context_view} WHERE entity_id = 2")
        assert "theirs" not in RECIPES[type_.name].text(2, dict(row)), type_.name
    await connection.close()


def test_no_code_names_a_type() -> None:
    found = [line for path in code_files() for line in offences(path.relative_to(ROOT).as_posix(), path.read_text())]
    assert found == []


@pytest.mark.parametrize(
    ("path", "code"),
    [
        ("services/a.py", 'kind == "variable"'),
        ("services/a.py", "REGISTRY = {'tag': 1}"),
        ("services/a.py", "match kind:\n    case 'user':\n        pass"),
        ("services/a.py", "customer_id = 1"),
        ("services/a.py", "def put_customer(): ..."),
        ("services/a.py", "class CustomerText: ..."),
        ("services/a.py", "AGGREGATE_VARIABLE = 1"),
        ("services/a.py", "import services.aggregate_variable"),
        ("services/a.py", "x = 'SELECT * FROM module_rule_rule'"),
        ("services/a.py", "x = f'FROM module_embeddings_user WHERE {y}'"),
        ("services/a.py", "# RuleChanged goes first"),
        ("services/a.py", "VariableDeleted = 1"),
        ("cli/a.py", "app.command('group')"),
        ("contracts/events/a.py", 'EventType(CONTEXT, "QueryChanged")'),
        ("services/files/a.py", 'x = "query"'),
        ("services/a.sql", "SELECT 'group' AS entity_type"),
        ("services/a.sql", "SELECT * FROM module_embeddings_tag_context"),
        ("services/a.sql", "-- of each customer"),
        ("contracts/proto/a.proto", "message AggregateVariable {}"),
    ],
)
def test_a_planted_name_is_found(path: str, code: str) -> None:
    assert len(offences(path, code)) == 1


@pytest.mark.parametrize(
    ("path", "code"),
    [
        ("services/a.py", '"""The environment variable of a user, by group."""'),
        ("services/a.py", "rule = group = query = user = tag = variable = 1  # a rule"),
        ("services/a.py", "x = 'no user may see this'"),
        ("services/search/a.py", 'x = "query"'),
        ("services/a.py", "module_embeddings_files_file"),
        ("services/a.sql", "SELECT 1 FROM a GROUP BY b -- by rule"),
    ],
)
def test_other_uses_of_the_words_are_none_of_its_business(path: str, code: str) -> None:
    assert offences(path, code) == []


def code_files() -> Iterator[Path]:
    for top in ("services", "cli", "contracts"):
        for path in sorted((ROOT / top).rglob("*")):
            if path.suffix in (".py", ".sql", ".proto", ".toml") and not path.is_relative_to(DEFAULT_FOLDER):
                yield path


def offences(path: str, text: str, types: Iterable[ResourceType] = tuple(TYPES.values())) -> list[str]:
    """Where a file names a type, one line each."""
    found: set[tuple[int, str]] = set()
    letters = text.lower().replace("_", "")
    for type_ in types:
        if type_.name.replace("_", "") not in letters:
            continue
        for number, line in enumerate(text.splitlines(), 1):
            if _derived(type_).search(line):
                found.add((number, type_.name))
        if path.endswith(".py"):
            found |= {(number, type_.name) for number in _in_python(path, text, type_.name)}
        else:
            found |= {(number, type_.name) for number in _in_other_code(text, type_.name)}
    # The longest name is the one that was meant.
    worst = {number: max((name for line, name in found if line == number), key=len) for number, _ in found}
    return [f"{path}:{number}: {name}" for number, name in sorted(worst.items())]


def _derived(type_: ResourceType) -> re.Pattern[str]:
    """The names of its tables, views and events."""
    events = "Changed|Deleted|Embedded|EmbeddingFailed|EmbeddingRemoved"
    return re.compile(
        rf"\b{type_.source_table}\b|\b{type_.table}(_context|_embedding|_tenant)?\b|\b{type_.event_stem}({events})\b"
    )


def _in_python(path: str, text: str, name: str) -> Iterator[int]:
    if not any(path.startswith(folder) and name == word for folder, word in OTHER_THINGS):
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.Constant) and node.value == name:
                yield node.lineno
    if name not in COMMON_WORDS:
        for token in tokenize.generate_tokens(io.StringIO(text).readline):
            if token.type == tokenize.NAME and name in _snake(token.string):
                yield token.start[0]


def _in_other_code(text: str, name: str) -> Iterator[int]:
    word = rf"'{name}'" if name in COMMON_WORDS else rf"{name}"
    for number, line in enumerate(text.splitlines(), 1):
        if re.search(rf"(?<![a-z]){word}(?![a-z])", _snake(line)):
            yield number


def _snake(text: str) -> str:
    """CamelCase words in the form that types are named in."""
    return re.sub(r"(?<=[a-z])(?=[A-Z])", "_", text).lower()
