"""The one family of errors that crosses layers.

Each error carries a stable ``code``, says what is wrong, where, and what to do. Entry points render it;
nothing stores it as content.
"""

from __future__ import annotations


class CauceError(Exception):
    """Base of every error that a caller may see.

    Attributes:
        code: stable identifier in upper snake case; part of the contract.
        message: what is wrong, in one sentence.
        where: the parameter, field, page or file concerned, if one is.
        remedy: what the caller can do, if anything.
    """

    def __init__(self, code: str, message: str, *, where: str | None = None, remedy: str | None = None) -> None:
        super().__init__(f"{code}: {message}" + (f"; {remedy}" if remedy else ""))
        self.code = code
        self.message = message
        self.where = where
        self.remedy = remedy


class InvalidInputError(CauceError):
    """The request itself is wrong; repeating it unchanged cannot help."""


class NotFoundError(CauceError):
    """The thing named does not exist within the caller's scope."""


class GoneError(CauceError):
    """The thing named is known, and what is asked of it is lost; repeating the request cannot help."""


class ConflictError(CauceError):
    """The thing named is in a state that forbids the operation."""


class TooLargeError(CauceError):
    """The input exceeds a stated limit."""


class ScopeError(CauceError):
    """The caller has no access scope, or an empty one."""


class IncompleteInputError(CauceError):
    """The caller stopped sending before the input was whole."""


class UnavailableError(CauceError):
    """Something the service depends on does not answer now; the same request may succeed later.

    Attributes:
        retry_after: seconds after which a retry makes sense, when the dependency said so.
    """

    def __init__(
        self,
        code: str,
        message: str,
        *,
        where: str | None = None,
        remedy: str | None = None,
        retry_after: float | None = None,
    ) -> None:
        super().__init__(code, message, where=where, remedy=remedy)
        self.retry_after = retry_after


class TimedOutError(UnavailableError):
    """This very operation took longer than it may, because of what it works on or because all is slow."""


class ConfigurationError(CauceError):
    """The process is configured in a way that it refuses to run with."""
