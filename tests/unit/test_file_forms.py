"""A multipart body gives the same whatever pieces it arrives in, and never more than it holds."""

from __future__ import annotations

from collections.abc import AsyncIterator
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from services.chassis.kernel.errors import IncompleteInputError, InvalidInputError
from services.files.entrypoints.http.multipart import Form, MultipartBody

CONTENT_TYPE = 'multipart/form-data; boundary="x y"'
BODY = (
    "--x y\r\nContent-Disposition: form-data; name=name\r\n\r\naño.txt\r\n"
    '--x y\r\ncontent-disposition: form-data; name="file"; filename="b.txt"\r\nContent-Type: text/plain\r\n\r\n'
    "\r\n--x \r\n--\r\n--x y--\r\n"
).encode()
FORM = Form({"name": "año.txt"}, "b.txt", "text/plain")
FILE = b"\r\n--x \r\n--"
LAST_BOUNDARY = b"--\r\n"


async def pieces(body: bytes, cuts: list[int]) -> AsyncIterator[bytes]:
    for start, end in pairwise([0, *sorted(min(cut, len(body)) for cut in cuts), len(body)]):
        yield body[start:end]


async def read(body: bytes, cuts: list[int]) -> tuple[Form, bytes]:
    form = MultipartBody(CONTENT_TYPE, pieces(body, cuts), frozenset({"name"}))
    head = await form.form()
    return head, b"".join([chunk async for chunk in form.file()])


@settings(deadline=None, max_examples=50)
@given(st.lists(st.integers(0, len(BODY)), max_size=12))
async def test_a_form_is_read_the_same_in_any_pieces(cuts: list[int]) -> None:
    assert await read(BODY, cuts) == (FORM, FILE)


async def test_a_form_is_read_a_byte_at_a_time() -> None:
    assert await read(BODY, list(range(1, len(BODY)))) == (FORM, FILE)


async def test_a_form_that_is_cut_off_anywhere_is_incomplete() -> None:
    for length in range(len(BODY) - len(LAST_BOUNDARY)):
        with pytest.raises(IncompleteInputError):
            await read(BODY[:length], [])


async def test_what_follows_the_last_boundary_is_not_asked_for() -> None:
    async def endless() -> AsyncIterator[bytes]:
        yield BODY
        raise AssertionError

    form = MultipartBody(CONTENT_TYPE, endless(), frozenset({"name"}))
    assert await form.form() == FORM
    assert b"".join([chunk async for chunk in form.file()]) == FILE


async def test_empty_lines_before_the_first_boundary_have_an_end() -> None:
    async def endless() -> AsyncIterator[bytes]:
        while True:
            yield b"\r\n" * 1_000

    with pytest.raises(InvalidInputError, match="besides its fields and its file"):
        await MultipartBody(CONTENT_TYPE, endless(), frozenset({"name"})).form()


@settings(deadline=None, max_examples=50)
@given(st.binary(max_size=200), st.lists(st.integers(0, 200), max_size=4))
async def test_bytes_that_are_no_form_are_refused(body: bytes, cuts: list[int]) -> None:
    with pytest.raises((InvalidInputError, IncompleteInputError)):
        await read(body, cuts)
