"""One record of the home: a few plain values and some arrays of bytes.

4 bytes   length of the head, little-endian
head      JSON: {"fields": …, "parts": [[name, length], …]}
parts     one after the other
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Self

from secemb_sdk.errors import DamagedError

_LENGTH_BYTES = 4


@dataclass(frozen=True, slots=True, repr=False)
class Record:
    """What is stored under one name. Its content is private."""

    fields: Mapping[str, Any] = field(default_factory=dict)
    parts: Mapping[str, bytes] = field(default_factory=dict)

    def encode(self) -> bytes:
        """Return the record as bytes."""
        lengths = [[name, len(part)] for name, part in self.parts.items()]
        head = json.dumps({"fields": dict(self.fields), "parts": lengths}, separators=(",", ":")).encode()
        return b"".join((len(head).to_bytes(_LENGTH_BYTES, "little"), head, *self.parts.values()))

    @classmethod
    def decode(cls, data: bytes) -> Self:
        """Read `encode`."""
        try:
            start = _LENGTH_BYTES + int.from_bytes(data[:_LENGTH_BYTES], "little")
            head = json.loads(data[_LENGTH_BYTES:start])
            parts = {}
            for name, length in head["parts"]:
                parts[name] = data[start : start + length]
                start += length
            found = cls(head["fields"], parts)
        except (ValueError, KeyError, TypeError, RecursionError):
            found = None
        if found is None or start != len(data):
            raise DamagedError("a record of the home cannot be read; restore the home, or remove it and begin anew")
        return found
