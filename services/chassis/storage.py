"""Object storage by URL through obstore; credentials come from each provider's usual variables."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit
from urllib.request import url2pathname

import obstore
from obstore.exceptions import BaseError
from obstore.store import LocalStore, from_url

from services.chassis.kernel.errors import CauceError, ConfigurationError, GoneError, UnavailableError

if TYPE_CHECKING:
    from obstore.store import ObjectStore, RetryConfig

REMOTE_SCHEMES: Final = ("s3", "gs", "az")
STORAGE_FAULTS: Final = (BaseError, OSError, TimeoutError)
"""What a store raises when it does not work. obstore answers a missing object with the builtin FileNotFoundError."""
OBJECTS: Final = "files"
"""The folder in which the files service keeps what files hold."""

_RETRY: RetryConfig = {"max_retries": 4, "retry_timeout": timedelta(seconds=30)}


def open_store(url: str) -> ObjectStore:
    """The store at ``file:///folder``, ``s3://bucket/prefix``, ``gs://bucket/prefix`` or ``az://account/container``.

    A local folder is made when it is missing.

    Raises:
        ConfigurationError: ``STORAGE_MISCONFIGURED``.
    """
    try:
        address = urlsplit(url)
        if address.scheme == "file":
            return LocalStore(url2pathname(address.path), mkdir=True)
        if address.scheme not in REMOTE_SCHEMES:
            raise ValueError(f"known are file, {', '.join(REMOTE_SCHEMES)}")
        return from_url(url, retry_config=_RETRY)
    except (BaseError, OSError, ValueError) as error:
        raise ConfigurationError(
            "STORAGE_MISCONFIGURED",
            f"object storage at {url!r} cannot be set up: {_first_line(error)}",
            where="CAUCE_STORAGE_URL",
            remedy="check the address and the credentials that the environment gives",
        ) from error


def storage_unavailable(error: Exception) -> UnavailableError:
    """The error that a caller sees for one of ``STORAGE_FAULTS``."""
    return UnavailableError(
        "STORAGE_UNAVAILABLE",
        f"object storage does not work: {_first_line(error)}",
        where="storage",
        remedy="try again",
    )


async def object_missing(store: ObjectStore) -> CauceError:
    """The error that a caller sees for an object that the store has not.

    It is GoneError ``CONTENT_MISSING`` where others are there. A store without any is not the one that the object was
    written to, such as a disk that is not mounted: it may come back, and is UnavailableError ``STORAGE_UNAVAILABLE``.
    """
    try:
        there = await obstore.list_with_delimiter_async(store)
    except STORAGE_FAULTS as error:
        return storage_unavailable(error)
    if OBJECTS not in there["common_prefixes"]:
        return storage_unavailable(FileNotFoundError("it is empty"))
    return GoneError(
        "CONTENT_MISSING", "the stored bytes of the file are gone", where="storage", remedy="send the bytes again"
    )


def _first_line(error: Exception) -> str:
    return (str(error) or type(error).__name__).splitlines()[0]
