"""The canonical bytes of a specification: JSON with sorted keys, integers and plain ASCII only.

Nothing in it can be written in two ways (no floats, no escapes, no spaces), so operators who compare digests also
compare what they read.
"""

import hashlib
import json
import re
from collections.abc import Mapping
from typing import Any

from secemb_shared.errors import EncodingError, SpecError

LARGEST_NUMBER = 2**53 - 1  # every JSON reader keeps this exactly
_DECIMAL = re.compile(r"(0|[1-9][0-9]{0,8})(\.[0-9]{0,11}[1-9])?")
_PLAIN = frozenset(chr(code) for code in range(0x20, 0x7F)) - {'"', "\\"}

Value = int | str | Mapping[str, Any]


def encode(fields: Mapping[str, Value]) -> bytes:
    """Return the canonical bytes of a specification."""
    _check(fields)
    return json.dumps(fields, sort_keys=True, separators=(",", ":"), ensure_ascii=True).encode("ascii")


def decode(data: bytes) -> dict[str, Any]:
    """Read canonical bytes; refuse anything but the single valid encoding of its content."""
    try:
        fields = json.loads(data.decode("ascii"))
        if isinstance(fields, dict) and encode(fields) == data:
            return fields
    except (ValueError, RecursionError, SpecError):
        pass
    raise EncodingError("a specification must be canonical JSON: sorted keys, integers only, ASCII only, no whitespace")


def digest(data: bytes | memoryview) -> bytes:
    """Return the SHA-256 that names a specification or a public part."""
    return hashlib.sha256(data).digest()


def decimal(text: str) -> float:
    """Parse a decimal number: digits and a point, without an exponent or trailing zeros."""
    if not _DECIMAL.fullmatch(text):
        raise SpecError("a rate must be a plain decimal such as 0.025, without a sign, exponent or trailing zero")
    return float(text)


def signed_decimal(text: str) -> float:
    """Parse a decimal number that may be negative."""
    digits = text.removeprefix("-")
    if digits != text and digits == "0":
        raise SpecError("zero must not have a sign")
    return float(f"-{decimal(digits)}") if digits != text else decimal(digits)


def _check(value: Value) -> None:
    match value:
        case bool():
            raise SpecError("booleans are not allowed in a specification")
        case int():
            if abs(value) > LARGEST_NUMBER:
                raise SpecError("a number in a specification must be less than 2^53")
        case str():
            if not _PLAIN.issuperset(value):
                raise SpecError("a string in a specification must be printable ASCII without quotes or backslashes")
        case Mapping():
            for key, inner in value.items():
                _check(key)
                _check(inner)
        case _:
            raise SpecError("a specification may contain only integers, strings and nested objects")
