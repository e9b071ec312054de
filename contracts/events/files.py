"""Events of the files context, on ``files.events``."""

from __future__ import annotations

from contracts.events.envelope import EventType

CONTEXT = "files"
FILE_UPLOADED = EventType(CONTEXT, "FileUploaded")
FILE_DELETED = EventType(CONTEXT, "FileDeleted")
