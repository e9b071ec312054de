"""What goes over the wire: camelCase in, snake_case out."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, Self

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

from services.files.application.find_files import FilePage
from services.files.domain.description import MAX_MEDIA_TYPE_CHARACTERS, MAX_NAME_CHARACTERS, check_name
from services.files.domain.file import File, FileStatus


def _check_text(name: Any) -> Any:
    """Let the name's own rules speak before pydantic's: a lone surrogate is a bad name too."""
    return check_name(name) if isinstance(name, str) else name


class RegisterFileBody(BaseModel):
    """A file as its sender describes it."""

    model_config = ConfigDict(extra="forbid")

    name: Annotated[str, BeforeValidator(_check_text)] = Field(
        description=f"1 to {MAX_NAME_CHARACTERS} characters; no path separator, no control character",
        examples=["manual.pdf"],
    )
    media_type: str | None = Field(
        default=None,
        alias="mediaType",
        description=f"at most {MAX_MEDIA_TYPE_CHARACTERS} characters; guessed from the name when left out",
        examples=["text/plain"],
    )
    metadata: dict[str, Any] | None = Field(default=None, description="a JSON object of at most 16 KiB")


class ProgressBody(BaseModel):
    """How far the present stage is. Both are 0 when it has no steps."""

    done: int
    total: int


class FileBody(BaseModel):
    """A file and how far it is."""

    file_id: int
    name: str
    media_type: str = Field(description="as declared, until processing has found the real one")
    size_bytes: int | None
    sha256: str | None = Field(description="64 hexadecimal digits")
    metadata: dict[str, Any]
    revision: int
    status: FileStatus = Field(description="final are COMPLETED and FAILED, and only those")
    outcome: str | None
    outcome_reason: str | None
    pages: int | None = Field(description="null where the format has none")
    page_kinds: dict[str, int] | None = Field(
        description="how many pages there are of each kind: text, ocr, described, empty, garbled, unreadable"
    )
    failed_descriptions: int = Field(
        description="images that could not be decoded or described; retry tries the latter again"
    )
    description_error: str | None = Field(description="why the last of them could not")
    chunks: int | None = Field(
        description="how many of the file's chunks can be found now; null in the answer to bytes that replace others"
    )
    stage: str | None
    progress: ProgressBody
    attempts: int
    error_code: str | None
    error_message: str | None
    created_at: datetime
    updated_at: datetime
    finished_at: datetime | None

    @classmethod
    def of(cls, file: File) -> Self:
        """Render a file."""
        current = file.current_processing
        changed_at = [file.updated_at, *([file.processing.updated_at] if file.processing else [])]
        finished_at = current.finished_at if current else file.updated_at
        return cls(
            file_id=file.file_id,
            name=file.name,
            media_type=(current and current.media_type) or file.declared_media_type,
            size_bytes=file.content.size_bytes if file.content else None,
            sha256=file.content.sha256.hex() if file.content else None,
            metadata=dict(file.metadata),
            revision=file.revision,
            status=file.status,
            outcome=current.outcome if current else None,
            outcome_reason=current.outcome_reason if current else None,
            pages=current.pages if current else None,
            page_kinds=dict(current.page_kinds) if current and current.page_kinds else None,
            failed_descriptions=current.failed_descriptions if current else 0,
            description_error=current.description_error if current else None,
            chunks=file.processing.chunks if file.processing else 0,
            stage=current.stage if current else None,
            progress=ProgressBody(
                done=current.progress_done if current else 0, total=current.progress_total if current else 0
            ),
            attempts=current.attempts if current else 0,
            error_code=current.error_code if current else file.error_code,
            error_message=current.error_message if current else file.error_message,
            created_at=file.created_at,
            updated_at=max(changed_at),
            finished_at=finished_at if file.status.is_final else None,
        )

    @classmethod
    def stored(cls, file: File) -> Self:
        """Render a file that has new bytes: until they are processed, the chunks of the old ones are found."""
        return cls.of(file).model_copy(update={"chunks": 0 if file.revision == 1 else None})


class FilePageBody(BaseModel):
    """Files, newest first."""

    files: list[FileBody]
    next: int | None = Field(description="the value of ``after`` for the next page; null on the last")

    @classmethod
    def of(cls, page: FilePage) -> Self:
        """Render a page."""
        return cls(files=[FileBody.of(file) for file in page.files], next=page.next_after)
