"""Types of parameters in addresses."""

from __future__ import annotations

import re
from typing import Annotated, Any

from pydantic import BeforeValidator
from pydantic_core import PydanticCustomError

_DIGITS = re.compile("-?[0-9]+", re.ASCII)


def _only_digits(given: Any) -> Any:
    if isinstance(given, str) and _DIGITS.fullmatch(given) is None:
        raise PydanticCustomError("whole_number", "write a whole number in digits")
    return given


WholeNumber = Annotated[int, BeforeValidator(_only_digits)]
"""An integer as people write it: ``1.0``, ``1_0`` and ``+1`` would be taken for another resource's id."""
