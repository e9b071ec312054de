"""The kernel's values."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.chassis.kernel.errors import ScopeError
from services.chassis.kernel.identifiers import uuid7
from services.chassis.kernel.scope import AccessScope
from services.chassis.kernel.text import sanitise


@pytest.mark.parametrize("tenant", ["", " ", "\t"])
def test_an_empty_scope_is_refused(tenant: str) -> None:
    with pytest.raises(ScopeError) as caught:
        AccessScope(tenant)
    assert caught.value.code == "SCOPE_EMPTY"


def test_identifiers_are_version_7_and_in_order_of_time() -> None:
    identifiers = [uuid7() for _ in range(100)]
    assert {one.version for one in identifiers} == {7}
    assert len(set(identifiers)) == 100
    milliseconds = [one.int >> 80 for one in identifiers]
    assert milliseconds == sorted(milliseconds)


@given(st.text(alphabet=st.characters(), max_size=50))
def test_sanitised_text_is_storable_and_stays_as_it_is(text: str) -> None:
    clean = sanitise(text)
    clean.encode()
    assert "\x00" not in clean
    assert sanitise(clean) == clean


def test_line_ends_become_newlines_and_control_characters_go() -> None:
    assert sanitise("a\r\nb\rc\x00\ud800\x1b\td") == "a\nb\nc\td"
