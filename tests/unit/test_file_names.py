"""What a file may be called, what it may carry, and what its status follows from."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from services.chassis.kernel.errors import ConflictError, InvalidInputError
from services.files.domain.description import check_media_type, check_metadata, check_name, describe, guess_media_type
from services.files.domain.file import File, FileState, FileStatus, Processing, StoredContent
from services.files.entrypoints.http.models import FileBody
from services.files.entrypoints.http.streaming import content_disposition

NOW = datetime(2026, 1, 1, tzinfo=UTC)


@pytest.mark.parametrize(
    "name", ["a", "x" * 255, "ñ" * 255, "...", ".hidden", "año 1 (copia).pdf", "报告.docx", "👩‍👩‍👧.txt", " a "]
)
def test_a_name_that_a_person_would_give_is_accepted(name: str) -> None:
    assert check_name(name) == name


@pytest.mark.parametrize(
    "name",
    [
        "",
        " ",
        "\u3000",
        ".",
        "..",
        "a/b",
        "a\\b",
        "\x00",
        "a\tb",
        "a\r\nb",
        "\x7f",
        "\x9f",
        "\u2028",
        "\ud83d",
        "x" * 256,
    ],
)
def test_another_name_is_refused(name: str) -> None:
    with pytest.raises(InvalidInputError) as caught:
        check_name(name)
    assert (caught.value.code, caught.value.where) == ("INVALID_NAME", "name")


@settings(deadline=None, max_examples=50)
@given(st.text(st.characters(exclude_categories=[]), max_size=300))
def test_an_accepted_name_is_storable_and_fits_in_a_header(name: str) -> None:
    try:
        check_name(name)
    except InvalidInputError:
        return
    name.encode()
    header = content_disposition(name)
    assert header.isascii()
    assert header.isprintable()


@pytest.mark.parametrize(
    ("given_type", "kept"),
    [
        ("text/plain", "text/plain"),
        ("Text/HTML; Charset=UTF-8", "text/html; Charset=UTF-8"),
        ('text/plain;a="b;\\"c"', 'text/plain;a="b;\\"c"'),
        ("application/vnd.ms-excel+x", "application/vnd.ms-excel+x"),
    ],
)
def test_a_media_type_is_kept_in_lower_case(given_type: str, kept: str) -> None:
    assert check_media_type(given_type) == kept


@pytest.mark.parametrize(
    "media_type",
    [
        *("", "pdf", "/", "text/", "/plain", "text/plain;", "text/plain; a", "text /plain", "a/b/c"),
        *("text/plain\r\nX: 1", "text/ñ", "\ud800/x", "a/" + "b" * 300, 'a/b;c="\n"'),
    ],
)
def test_another_media_type_is_refused(media_type: str) -> None:
    with pytest.raises(InvalidInputError) as caught:
        check_media_type(media_type)
    assert caught.value.code == "INVALID_MEDIA_TYPE"


@pytest.mark.parametrize(
    ("name", "media_type"),
    [
        ("a.PDF", "application/pdf"),
        ("a.tar.gz", "application/x-tar"),
        ("noextension", "application/octet-stream"),
        ("http:a.pdf", "application/pdf"),
        ("data:,a.html", "text/html"),
    ],
)
def test_a_media_type_is_guessed_from_the_name(name: str, media_type: str) -> None:
    assert guess_media_type(name) == media_type


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(st.characters(exclude_categories=[])),
    lambda children: st.lists(children) | st.dictionaries(st.text(st.characters(exclude_categories=[])), children),
    max_leaves=5,
)


@settings(deadline=None, max_examples=25)
@given(st.dictionaries(st.text(st.characters(exclude_categories=[])), JSON))
def test_accepted_metadata_is_storable_as_jsonb(metadata: dict[str, Any]) -> None:
    try:
        check_metadata(metadata)
    except InvalidInputError:
        return
    stored = json.dumps(metadata, ensure_ascii=False, allow_nan=False)
    assert json.loads(stored.encode()) == metadata
    assert "\\u0000" not in stored.replace("\\\\", "")


@pytest.mark.parametrize("metadata", [None, {}])
def test_metadata_may_be_left_out(metadata: Any) -> None:
    assert describe("a", None, metadata).metadata == {}


@pytest.mark.parametrize(
    "metadata",
    [
        *([], "x", 1, {"a": "\x00"}, {"\x00": 1}, {"a": [{"b": "\x00"}]}, {"a": float("nan")}, {"a": float("inf")}),
        *({"a": "\ud800"}, {"\ud800": 1}, {"a": "x" * 16_384}, {"a": {1, 2}}),
    ],
)
def test_other_metadata_is_refused(metadata: Any) -> None:
    with pytest.raises(InvalidInputError):
        check_metadata(metadata)


PROCESSING = Processing(
    status=FileStatus.COMPLETED,
    revision=3,
    outcome="INDEXED",
    outcome_reason=None,
    media_type="text/html",
    pages=7,
    chunks=11,
    stage=None,
    progress_done=0,
    progress_total=0,
    attempts=1,
    error_code=None,
    error_message=None,
    finished_at=NOW,
    updated_at=NOW,
)
STORED = File(
    file_id=1,
    name="a.txt",
    declared_media_type="text/plain",
    metadata={},
    state=FileState.STORED,
    revision=3,
    content=StoredContent("key", 5, b"\x01" * 32),
    error_code=None,
    error_message=None,
    created_at=NOW,
    updated_at=NOW,
    processing=None,
)
UPLOADING = replace(STORED, state=FileState.UPLOADING, content=None, revision=0)
BROKEN = replace(UPLOADING, state=FileState.FAILED, error_code="UPLOAD_INCOMPLETE", error_message="it stopped")


@pytest.mark.parametrize(
    ("file", "status"),
    [
        (UPLOADING, "UPLOADING"),
        (BROKEN, "FAILED"),
        (STORED, "PENDING"),
        (replace(STORED, processing=replace(PROCESSING, status=FileStatus.PENDING, revision=0)), "PENDING"),
        (replace(STORED, processing=replace(PROCESSING, status=FileStatus.PROCESSING, revision=2)), "PROCESSING"),
        (replace(STORED, processing=PROCESSING), "COMPLETED"),
        (replace(STORED, processing=replace(PROCESSING, revision=4)), "COMPLETED"),
        (replace(STORED, processing=replace(PROCESSING, revision=2)), "PENDING"),
        (replace(STORED, processing=replace(PROCESSING, status=FileStatus.FAILED)), "FAILED"),
        (replace(STORED, processing=replace(PROCESSING, status=FileStatus.FAILED, revision=2)), "PENDING"),
    ],
)
def test_status_follows_from_the_bytes_and_their_processing(file: File, status: str) -> None:
    assert file.status == status
    assert (FileBody.of(file).finished_at is not None) == file.status.is_final


def test_a_result_of_older_bytes_is_not_shown_but_its_chunks_are_still_found() -> None:
    body = FileBody.of(replace(STORED, processing=replace(PROCESSING, revision=2)))

    assert (body.outcome, body.pages, body.attempts, body.finished_at) == (None, None, 0, None)
    assert (body.media_type, body.chunks) == ("text/plain", 11)


def test_a_refused_retry_says_what_the_file_waits_for() -> None:
    waiting = replace(PROCESSING, status=FileStatus.PENDING, error_message="the model is out")
    with pytest.raises(ConflictError, match="ends by itself; the last fault: the model is out"):
        replace(STORED, processing=waiting).require_retryable()


def test_only_a_file_that_ended_with_its_bytes_stored_may_be_retried() -> None:
    replace(STORED, processing=PROCESSING).require_retryable()
    for file, code in ((UPLOADING, "UPLOAD_IN_PROGRESS"), (BROKEN, "UPLOAD_INCOMPLETE"), (STORED, "NOT_FINISHED")):
        with pytest.raises(ConflictError) as caught:
            file.require_retryable()
        assert caught.value.code == code
