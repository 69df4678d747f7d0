"""Vector files: the bytes that they are made from, and the encoding of values, as hexadecimal in wire order."""

import hashlib
import json
import re
from typing import Any

import numpy as np
import numpy.typing as npt

from secemb_shared.labels import Label
from secemb_shared.prg import BLOCK, Blocks, stream
from secemb_shared.randomness import Indices, draw_below

Json = dict[str, Any]

_LIST_OF_NUMBERS = re.compile(r"\[\n\s+(-?\d+(?:,\n\s+-?\d+)*)\n\s+\]")


def text(document: Json) -> str:
    """Return the file: sorted keys, one value per line, and lists of whole numbers on one line."""
    lines = json.dumps(document, indent=1, sort_keys=True, ensure_ascii=True, allow_nan=False)
    return _LIST_OF_NUMBERS.sub(lambda found: "[" + ", ".join(re.findall(r"-?\d+", found[1])) + "]", lines) + "\n"


def plain(array: npt.NDArray[Any]) -> str:
    """Return the little-endian bytes of an array as hexadecimal."""
    return array.astype(array.dtype.newbyteorder("<"), copy=False).tobytes().hex()


def each(array: npt.NDArray[Any]) -> list[str]:
    """Return the rows of an array, each as hexadecimal."""
    return [plain(np.asarray(row)) for row in array]


def hex_floats(values: npt.NDArray[np.floating]) -> list[str]:
    """Return numbers exactly, in C's hexadecimal notation."""
    return [float(value).hex() for value in values]


class Source:
    """Blocks AES_K(0), AES_K(1), … with K = the first half of SHA-256("secemb/1 vectors " ‖ name).

    Each draw takes the next bytes, with no gap. All that is drawn is also written into the vectors.
    """

    def __init__(self, name: str) -> None:
        self._key = hashlib.sha256(b"secemb/1 vectors " + name.encode("ascii")).digest()[:BLOCK]
        self._used = 0

    def __call__(self, count: int) -> bytes:
        """Return the next `count` bytes."""
        if count == 0:
            return b""
        first, skip = divmod(self._used, BLOCK)
        self._used += count
        blocks = stream(self._key, -(-(skip + count) // BLOCK), first)
        return blocks.tobytes()[skip : skip + count]

    def blocks(self, count: int) -> Blocks:
        """Return (count, 16) bytes."""
        return np.frombuffer(self(BLOCK * count), dtype=np.uint8).reshape(count, BLOCK)

    def below(self, bound: int, count: int) -> Indices:
        """Return numbers below `bound`."""
        return draw_below(np.full(count, bound, dtype=np.int64), self)

    def label(self, number: int) -> Label:
        """Return the label of some session."""
        return Label(self(32), number, self(16))


class Recorder:
    """A source that records what was drawn from it."""

    def __init__(self, source: Source) -> None:
        self._source = source
        self.drawn = b""

    def __call__(self, count: int) -> bytes:
        """Return the next `count` bytes and remember them."""
        some = self._source(count)
        self.drawn += some
        return some


class Replay:
    """The bytes of a recorder again."""

    def __init__(self, drawn: bytes) -> None:
        self._left = drawn

    def __call__(self, count: int) -> bytes:
        """Return the next `count` bytes, or raise when they were not drawn before."""
        some, self._left = self._left[:count], self._left[count:]
        if len(some) != count:
            raise ValueError("more bytes are drawn than were recorded")
        return some
