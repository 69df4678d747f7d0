"""Quantisers: each number of an update in eight bits, or as minus one, zero or one."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import numpy.typing as npt

from secemb_lab.paper.compression.compressor import FLOAT_BYTES, Compressor, shape_of, touched
from secemb_sdk.models import Floats
from secemb_sdk.models.update import Numbers
from secemb_sdk.round.session import generator_seed
from secemb_shared.messages import RoundSpec
from secemb_shared.randomness import RandomBytes

Bytes = npt.NDArray[np.uint8]

_SIGN, _MAGNITUDE, _MAGNITUDE_BITS = 0x80, 0x7F, 7


def _number(code: int) -> float:
    """Return the value of a byte of the dynamic tree type, as a fraction of the largest number.

    A sign, k zeros for the power 10^−k, a one, and the remaining bits for a place between 0.1 and 1. Without the
    one the byte is zero, or the largest number itself.
    """
    magnitude = code & _MAGNITUDE
    if not magnitude:
        return 1.0 if code & _SIGN else 0.0
    bits = magnitude.bit_length() - 1  # after the one
    place = (magnitude - (1 << bits) + 0.5) / (1 << bits)
    value = 10.0 ** (bits + 1 - _MAGNITUDE_BITS) * (0.1 + 0.9 * place)
    return -value if code & _SIGN else value


_NUMBERS = np.array([_number(code) for code in range(256)], dtype=np.float32)  # by byte
_CODES: Bytes = np.argsort(_NUMBERS).astype(np.uint8)  # by size of the number
_BETWEEN = (_NUMBERS[_CODES][1:] + _NUMBERS[_CODES][:-1]) / 2


@dataclass(frozen=True, slots=True)
class Bit8Quant(Compressor):
    """A byte for each number, of the dynamic tree type (Dettmers 2015), and the largest number as a float."""

    name: ClassVar[str] = "Bit8quant"

    def size(self, round_: RoundSpec) -> int:
        """Return a byte for each number, and the scale."""
        items, width = shape_of(round_)
        return FLOAT_BYTES + items * width

    def compress(self, round_: RoundSpec, update: Floats, random_bytes: RandomBytes) -> bytes:
        """Return the scale, and the byte whose number is nearest to each element; nothing is drawn."""
        rows = touched(update)
        scale = np.float32(np.abs(update[rows]).max(initial=0.0))
        codes: Bytes = np.zeros(update.shape, dtype=np.uint8)
        if rows.size:
            codes[rows] = _CODES[np.searchsorted(_BETWEEN, update[rows] / scale)]
        return scale.tobytes() + codes.tobytes()

    def _read(self, round_: RoundSpec, message: bytes) -> Numbers:
        codes = np.frombuffer(message, dtype=np.uint8, offset=FLOAT_BYTES).reshape(shape_of(round_))
        found: Numbers = np.frombuffer(message, dtype=np.float32, count=1) * _NUMBERS[codes]
        return found


_DIGITS = 5  # in a byte: 3^5 = 243
_POWERS: Bytes = (3 ** np.arange(_DIGITS)).astype(np.uint8)
_UNPACKED = (np.arange(3**_DIGITS)[:, None] // _POWERS % 3).astype(np.int8) - 1  # (243, 5)


@dataclass(frozen=True, slots=True)
class TernQuant(Compressor):
    """Each number as s·sign or zero, where s is the largest, so that the mean is the number (TernGrad, Wen 2017).

    Nothing is clipped before, because that would bias the estimate. A byte holds five numbers.
    """

    name: ClassVar[str] = "Ternquant"

    def size(self, round_: RoundSpec) -> int:
        """Return a byte for five numbers, and the scale."""
        items, width = shape_of(round_)
        return FLOAT_BYTES + -(-items * width // _DIGITS)

    def compress(self, round_: RoundSpec, update: Floats, random_bytes: RandomBytes) -> bytes:
        """Return the scale and the digits; each is non-zero with a probability proportional to its number."""
        rows = touched(update)
        scale = np.float32(np.abs(update[rows]).max(initial=0.0))
        digits: Bytes = np.ones(_DIGITS * (self.size(round_) - FLOAT_BYTES), dtype=np.uint8)  # one stands for zero
        if rows.size:
            own, random = update[rows], np.random.default_rng(generator_seed(random_bytes))
            kept = random.random(own.shape) * scale < np.abs(own)
            digits[: update.size].reshape(update.shape)[rows] += (np.sign(own) * kept).astype(np.int8).view(np.uint8)
        return scale.tobytes() + (digits.reshape(-1, _DIGITS) @ _POWERS).astype(np.uint8).tobytes()

    def _read(self, round_: RoundSpec, message: bytes) -> Numbers:
        items, width = shape_of(round_)
        digits = _UNPACKED[np.frombuffer(message, dtype=np.uint8, offset=FLOAT_BYTES)].ravel()[: items * width]
        found: Numbers = np.frombuffer(message, dtype=np.float32, count=1) * digits.reshape(items, width)
        return found
