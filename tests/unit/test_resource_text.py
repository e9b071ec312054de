"""Templates of texts, and texts in parts."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, date, datetime
from decimal import Decimal

import pytest

from services.embeddings.domain.resource_text import MAX_PARTS, ResourceTextError, TextRecipe
from services.embeddings.domain.resource_work import ResourceContext, Source
from services.embeddings.domain.text_template import TemplateInvalidError, TextTemplate, ValueUnusableError

TEMPLATE = """\
# {name}

{description}

- Unit: {unit}
- From {low} to {high}

## Parts

### Small

- {small*}

### Large

- {large*}

## Notes

{notes}
"""
EMPTY = {"name": "Pump", **dict.fromkeys(("description", "unit", "low", "high", "small", "large", "notes"))}


def render(**values: object) -> str:
    return TextTemplate.parse(TEMPLATE).render({**EMPTY, **values})


def recipe(*, splits: bool = False, max_characters: int = 20) -> TextRecipe:
    return TextRecipe("machine", "1", TextTemplate.parse("# {name}"), max_characters, splits, frozenset({"machine"}))


def test_what_has_no_value_leaves_no_trace() -> None:
    assert render() == "# Pump"
    assert render(unit="bar") == "# Pump\n\n- Unit: bar"
    assert render(notes="Loud.") == "# Pump\n\n## Notes\n\nLoud."


def test_a_heading_stays_for_what_stands_below_its_subheadings() -> None:
    assert render(large=["shaft"]) == "# Pump\n\n## Parts\n\n### Large\n\n- shaft"


def test_a_line_needs_all_of_its_values() -> None:
    assert render(low=1) == "# Pump"
    assert render(low=1, high=2.5) == "# Pump\n\n- From 1 to 2.5"


@pytest.mark.parametrize("nothing", [None, "", "  \n ", [], [None, " "], ()])
def test_blank_is_no_value(nothing: object) -> None:
    assert render(unit=nothing, small=nothing) == "# Pump"


def test_nothing_at_all_is_an_empty_text() -> None:
    assert render(name=None) == ""


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (True, "yes"),
        (False, "no"),
        (0, "0"),
        (7, "7"),
        (0.1, "0.1"),
        (1250.0, "1250"),
        (2.0**53, "9007199254740992.0"),
        (Decimal("12.500"), "12.5"),
        (Decimal(100), "100"),
        (datetime(2026, 1, 2, 3, 4, tzinfo=UTC), "2026-01-02 03:04+00:00"),
        (date(2026, 1, 2), "2026-01-02"),
        (["a", None, "b"], "a, b"),
        ("a\n  b", "a b"),
        ("a\x00b", "ab"),
    ],
)
def test_values_have_one_form(value: object, text: str) -> None:
    assert render(unit=value) == f"# Pump\n\n- Unit: {text}"


def test_a_value_alone_on_its_line_keeps_its_paragraphs() -> None:
    assert render(description="One.\n\nTwo.\n# Not a heading of ours") == (
        "# Pump\n\nOne.\n\nTwo.\n# Not a heading of ours"
    )


def test_braces_in_a_value_are_not_read_as_a_template() -> None:
    assert render(description="{unit}", small=["{name}", "{small*}"]) == (
        "# Pump\n\n{unit}\n\n## Parts\n\n### Small\n\n- {name}\n- {small*}"
    )


@pytest.mark.parametrize("value", [float("nan"), float("inf"), Decimal("NaN"), {"a": 1}, b"x", object()])
def test_a_value_without_a_form_is_refused(value: object) -> None:
    with pytest.raises(ValueUnusableError, match="the column unit holds"):
        render(unit=value)


def test_a_column_that_is_not_there_is_refused() -> None:
    with pytest.raises(ValueUnusableError, match="no column name"):
        TextTemplate.parse("# {name}").render({})


@pytest.mark.parametrize("source", ["{Name}", "{name", "name}", "{}", "{na me}", "{{name}}", "{name!r}", "{name:>3}"])
def test_a_template_knows_nothing_but_names(source: str) -> None:
    with pytest.raises(TemplateInvalidError, match="a brace is not part of"):
        TextTemplate.parse(source)


def test_a_repeated_line_names_one_list() -> None:
    with pytest.raises(TemplateInvalidError, match="may name nothing else"):
        TextTemplate.parse("- {a*} {b}")


def test_a_resource_of_which_nothing_is_known_is_called_by_type_and_id() -> None:
    assert recipe().text(7, {"name": None}) == "machine 7"


def test_a_context_that_cannot_be_rendered_says_so() -> None:
    with pytest.raises(ResourceTextError) as caught:
        recipe().text(7, {})
    assert (caught.value.code, caught.value.where) == ("CONTEXT_INVALID", "machine")


def test_a_text_at_the_limit_is_one_part() -> None:
    assert recipe().parts("x" * 20) == ["x" * 20]


def test_a_longer_text_is_refused() -> None:
    with pytest.raises(ResourceTextError) as caught:
        recipe().parts("x" * 21)
    assert caught.value.code == "TEXT_TOO_LONG"
    assert "21 characters, more than the 20" in caught.value.message


def test_a_longer_text_is_split_at_lines_then_spaces_then_anywhere() -> None:
    text = "first line\nsecond line\nthree words of it here and " + "x" * 45
    assert recipe(splits=True).parts(text) == [
        "first line",
        "second line",
        "three words of it",
        "here and",
        "x" * 20,
        "x" * 20,
        "x" * 5,
    ]


def test_a_text_of_too_many_parts_is_refused() -> None:
    with pytest.raises(ResourceTextError) as caught:
        recipe(splits=True).parts("x" * (20 * MAX_PARTS + 1))
    assert caught.value.code == "TEXT_TOO_LONG"


def test_what_a_context_read_is_told_by_type_and_id() -> None:
    assert recipe().sources(["machine:7", None, "machine:7", f"machine:{2**63 - 1}"]) == {
        Source("machine", 7),
        Source("machine", 2**63 - 1),
    }


@pytest.mark.parametrize("read", ["engine:7", "machine", "machine:", "machine:x", f"machine:{2**63}", "machine:-1", ""])
def test_a_context_that_reads_what_is_not_declared_is_refused(read: str) -> None:
    assert recipe().sources([read]) == frozenset()
    with pytest.raises(ResourceTextError) as caught:
        recipe().require_sound(context(reads=["machine:1", None, read]))
    assert caught.value.code == "CONTEXT_INVALID"


def test_a_context_without_a_revision_is_refused() -> None:
    recipe().require_sound(context())
    with pytest.raises(ResourceTextError, match="revision is NULL") as caught:
        recipe().require_sound(context(revision=None))
    assert caught.value.code == "CONTEXT_INVALID"


def context(*, revision: int | None = 1, reads: Sequence[str | None] = ()) -> ResourceContext:
    return ResourceContext(1, "acme", "Pump", revision, reads, {}, None)
