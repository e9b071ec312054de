"""How a call to a model can fail, apart from the model being away (UnavailableError)."""

from __future__ import annotations

from services.chassis.kernel.errors import CauceError, UnavailableError


class CallFailedError(UnavailableError):
    """The provider answers, but this very call failed each time (500, 504, no answer in time)."""


class ImageNotDescribedError(CauceError):
    """The model gave no whole description of this image. Code ``IMAGE_NOT_DESCRIBED``."""
