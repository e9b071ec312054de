"""What a consumer adds to the headers of a record that it sets aside, on ``embeddings.dead-letters``."""

from __future__ import annotations

REASON = "dead_letter_reason"
DETAIL = "dead_letter_detail"
TOPIC = "dead_letter_topic"
PARTITION = "dead_letter_partition"
OFFSET = "dead_letter_offset"
TIME = "dead_letter_time"
LEFT = "dead_letter_left"
UNKNOWN = "unknown"

HEADERS = {
    REASON: "A stable code, such as INVALID_PAYLOAD or UNKNOWN_TYPE.",
    DETAIL: "What is wrong.",
    TOPIC: "Where the record came from.",
    PARTITION: "Its partition there.",
    OFFSET: "Its offset there.",
    TIME: "When it was set aside, in milliseconds since 1970.",
    LEFT: "How many bytes its key and value had, where they were too large to be kept here with its headers; `unknown` "
    "where it could not be decoded.",
}
"""Each header with what it says. All are text in UTF-8."""
