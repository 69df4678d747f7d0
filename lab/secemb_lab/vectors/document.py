"""How values are written in a vector file: bytes and ring elements as hexadecimal, in wire order."""

import json
import re
from typing import Any

import numpy as np
import numpy.typing as npt

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
