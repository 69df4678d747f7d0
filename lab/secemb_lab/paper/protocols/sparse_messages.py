"""Updates of some coordinates of a vector as bytes: coordinates and numbers, in the shorter of two forms."""

import numpy as np
import numpy.typing as npt

from secemb_shared.dpf import RingArray
from secemb_shared.randomness import Indices

NUMBER = 4  # bytes of a coordinate and of a ring element
_BITMAP, _LIST = b"\0", b"\1"


def encode(places: Indices, values: RingArray, *, size: int) -> bytes:
    """Return coordinates, rising, with their numbers: (places, …)."""
    listed = places.astype("<u4").tobytes()
    bits = np.zeros(size, np.uint8)
    bits[places] = 1
    bitmap = np.packbits(bits).tobytes()
    head = _LIST + len(places).to_bytes(NUMBER, "little") + listed if len(listed) < len(bitmap) else _BITMAP + bitmap
    return head + values.astype("<u4").tobytes()


def decode(data: bytes, *, size: int, width: int = 1) -> tuple[Indices, RingArray]:
    """Decode `encode`, with the numbers as (places, width)."""
    if data[:1] == _LIST:
        count = int.from_bytes(data[1 : 1 + NUMBER], "little")
        places = np.frombuffer(data, "<u4", count, 1 + NUMBER).astype(np.int64)
        start = 1 + NUMBER * (1 + count)
    else:
        start = 1 + -(-size // 8)
        packed: npt.NDArray[np.uint8] = np.frombuffer(data, np.uint8, start - 1, 1)
        places = np.flatnonzero(np.unpackbits(packed, count=size)).astype(np.int64)
    return places, np.frombuffer(data, "<u4", offset=start).astype(np.uint32).reshape(-1, width)
