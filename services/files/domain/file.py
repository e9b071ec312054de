"""A file: its bytes as the files service knows them, joined with what is published of their processing.

Its status follows from the two: UPLOADING, PENDING, PROCESSING, then COMPLETED or FAILED, and only the last two are
final. A result of an older revision of the bytes says nothing about the present ones.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Any

from services.chassis.kernel.errors import ConflictError

MAX_FILE_ID = 2**63 - 1


class FileState(StrEnum):
    """The state of a file's bytes."""

    UPLOADING = "UPLOADING"
    STORED = "STORED"
    FAILED = "FAILED"


class FileStatus(StrEnum):
    """The state of a file as a caller sees it."""

    UPLOADING = "UPLOADING"
    PENDING = "PENDING"
    PROCESSING = "PROCESSING"
    COMPLETED = "COMPLETED"
    FAILED = "FAILED"

    @property
    def is_final(self) -> bool:
        """Nothing changes any more unless somebody asks for it."""
        return self in {FileStatus.COMPLETED, FileStatus.FAILED}


@dataclass(frozen=True, slots=True)
class StoredContent:
    """Bytes that storage holds whole. ``sha256`` is their digest, 32 bytes."""

    storage_key: str
    size_bytes: int
    sha256: bytes


@dataclass(frozen=True, slots=True)
class Processing:
    """What the embeddings service publishes of a file. ``revision`` is the one that was processed last."""

    status: FileStatus
    revision: int
    outcome: str | None
    outcome_reason: str | None
    media_type: str | None
    pages: int | None
    chunks: int
    stage: str | None
    progress_done: int
    progress_total: int
    attempts: int
    error_code: str | None
    error_message: str | None
    finished_at: datetime | None
    updated_at: datetime
    page_kinds: Mapping[str, int] | None = None
    failed_descriptions: int = 0
    description_error: str | None = None


@dataclass(frozen=True, slots=True)
class File:
    """A file of a tenant.

    Attributes:
        declared_media_type: what the sender said, or its name suggested.
        revision: counts the times that the bytes were stored or their processing was asked for again.
        content: the stored bytes, None while there are none.
        error_code: why the upload ended, None unless ``state`` is FAILED.
        processing: what is published of it, None when the embeddings service has not heard of it yet.
    """

    file_id: int
    name: str
    declared_media_type: str
    metadata: Mapping[str, Any]
    state: FileState
    revision: int
    content: StoredContent | None
    error_code: str | None
    error_message: str | None
    created_at: datetime
    updated_at: datetime
    processing: Processing | None

    @property
    def current_processing(self) -> Processing | None:
        """The processing that concerns the present bytes: under way, or ended on this revision."""
        processing = self.processing
        if processing is None or self.state is not FileState.STORED:
            return None
        is_stale = processing.status.is_final and processing.revision < self.revision
        return None if is_stale else processing

    @property
    def status(self) -> FileStatus:
        """The state as a caller sees it."""
        if self.state is not FileState.STORED:
            return FileStatus(self.state)
        return self.current_processing.status if self.current_processing else FileStatus.PENDING

    def require_content(self) -> StoredContent:
        """The stored bytes.

        Raises:
            ConflictError: ``UPLOAD_IN_PROGRESS``, or the code with which the upload failed.
        """
        if self.content is not None:
            return self.content
        raise ConflictError(
            self.error_code or "UPLOAD_IN_PROGRESS",
            f"the bytes of the file are not stored: {self.error_message or 'they are still awaited'}",
            where="file_id",
            remedy=f"send the bytes to /files/{self.file_id}/content",
        )

    def require_retryable(self) -> None:
        """Check that processing may be asked for again.

        Raises:
            ConflictError: as ``require_content``, or ``NOT_FINISHED`` while the file waits or is being processed.
        """
        self.require_content()
        if not self.status.is_final:
            said = self.current_processing and self.current_processing.error_message
            raise ConflictError(
                "NOT_FINISHED",
                f"the file is {self.status} and ends by itself" + (f"; the last fault: {said}" if said else ""),
                where="file_id",
                remedy="wait until it is COMPLETED or FAILED",
            )
