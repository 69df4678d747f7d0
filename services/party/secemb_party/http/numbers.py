"""Whole numbers in addresses, headers and forms: ASCII digits, and no more of them than every database can count to."""

import re
from typing import Annotated

from pydantic import BeforeValidator, Field

from secemb_shared.messages.canonical import LARGEST_NUMBER

_DIGITS = re.compile(r"[0-9]{1,16}")


def read_number(text: str) -> int | None:
    """Return the number that a text is, or None where it is none: `int` alone reads ` +1_0` and `٣` as well."""
    number = int(text) if _DIGITS.fullmatch(text) else LARGEST_NUMBER + 1
    return number if number <= LARGEST_NUMBER else None


def _checked(text: object) -> int:
    number = read_number(text) if isinstance(text, str) else None
    if number is None:
        raise ValueError("a whole number is written in digits, and is not larger than 9007199254740991")
    return number


Number = Annotated[int, Field(ge=0, le=LARGEST_NUMBER), BeforeValidator(_checked)]
