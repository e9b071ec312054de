"""What a command can fail with, as a person and a program read it."""

from __future__ import annotations


class CommandError(Exception):
    """A command cannot go on.

    Attributes:
        code: stable identifier, of the service or of this command.
        detail: what is wrong.
        where: the parameter, field or file concerned, if one is.
        remedy: what to do, if anything.
        passing: the same call may succeed in a moment.
    """

    def __init__(
        self, code: str, detail: str, *, where: str | None = None, remedy: str | None = None, passing: bool = False
    ) -> None:
        super().__init__(code, detail)
        self.code = code
        self.detail = detail
        self.where = where
        self.remedy = remedy
        self.passing = passing

    @property
    def message(self) -> str:
        """All but the code, for a person."""
        where = f" ({self.where})" if self.where else ""
        remedy = f"; {self.remedy}" if self.remedy else ""
        return f"{self.detail}{where}{remedy}"

    def __str__(self) -> str:
        return f"{self.code}: {self.message}"
