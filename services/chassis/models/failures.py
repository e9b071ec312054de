"""How a call to a model can fail, apart from the model being away (UnavailableError)."""

from __future__ import annotations

from services.chassis.kernel.errors import CauceError, UnavailableError


class CallFailedError(UnavailableError):
    """This very call failed each time, while the provider answers others well."""


class ImageNotDescribedError(CauceError):
    """The model gave no whole description of this image. Code ``IMAGE_NOT_DESCRIBED``."""
