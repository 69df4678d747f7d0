"""A public pseudo-random permutation of the catalogue, O(1) per item and the same in every language.

Nothing here is secret: the key follows from task and round, and anyone can compute it. The permutation only has to
behave as if random on any fixed set of items, as the bound in `loss` assumes.
"""

from collections.abc import Callable
from math import isqrt

import numpy as np

from secemb_shared import kernel
from secemb_shared.errors import LayoutError
from secemb_shared.layout.geometry import MOST_ITEMS
from secemb_shared.prg import stream, stream_at
from secemb_shared.randomness import Indices

ROUNDS = 6
KEY_BYTES = 16
OUTSIDE = "a value is out of range for the catalogue"


class Permutation:
    """A keyed permutation of {0, …, items - 1}: a Feistel network on a rectangle, with cycle walking.

    Let a = ceil(sqrt(items)) and b = ceil(items / a), and write x in {0, …, a·b - 1} as x = L·b + R with
    0 ≤ L < a and 0 ≤ R < b.

    Tables: read the key's stream (below) as little-endian 32-bit words, in order, for rounds i = 0, 1, …, 5.
    An even round takes b words, F_i[r] = word mod a; an odd round takes a words, F_i[l] = word mod b.

    One turn: for i = 0, …, 5, an even round sets L = (L + F_i[R]) mod a, an odd one R = (R + F_i[L]) mod b.
    The permutation turns x once, and again while the result is `items` or more. Its inverse undoes
    the rounds from 5 to 0 with minus signs, and walks in the same way.

    Stream: block n = AES-128 of n as a 16-byte little-endian integer, for n = 0, 1, 2, ….
    """

    def __init__(self, items: int, key: bytes) -> None:
        if not 1 <= items <= MOST_ITEMS:
            raise LayoutError(f"a catalogue must have 1 to {MOST_ITEMS} items")
        if len(key) != KEY_BYTES:
            raise LayoutError(f"a permutation key must be {KEY_BYTES} bytes")
        self.items = items
        self._rows = isqrt(items - 1) + 1
        self._columns = -(-items // self._rows)
        self._key = key

    def forward(self, values: Indices) -> Indices:
        """Return the place of each item."""
        return self._permuted(values, backwards=False)

    def inverse(self, values: Indices) -> Indices:
        """Return the item at each place."""
        return self._permuted(values, backwards=True)

    def _permuted(self, values: Indices, *, backwards: bool) -> Indices:
        if not kernel.native_available():
            return self.walk(values, backwards=backwards)
        try:
            return kernel.permute(self._key, values, items=self.items, backwards=backwards)
        except ValueError as error:  # it has checked every value already
            raise LayoutError(OUTSIDE) from error

    def walk(self, values: Indices, *, backwards: bool) -> Indices:
        """Apply turns to each value until it is inside the catalogue; this defines what the kernel computes.

        Fewer than 1 in sqrt(items) values need a second turn.
        """
        if values.size and not 0 <= int(values.min()) <= int(values.max()) < self.items:
            raise LayoutError(OUTSIDE)
        turn: Callable[[Indices], Indices] = self._turn_back if backwards else self._turn
        result = turn(values.reshape(-1))
        outside = np.flatnonzero(result >= self.items)
        while outside.size:
            result[outside] = turn(result[outside])
            outside = outside[result[outside] >= self.items]
        return result.reshape(values.shape)

    def _turn(self, values: Indices) -> Indices:
        left, right = np.divmod(values, self._columns)
        for number in range(ROUNDS):
            if number % 2 == 0:
                left = (left + self._shift(number, right)) % self._rows
            else:
                right = (right + self._shift(number, left)) % self._columns
        return left * self._columns + right

    def _turn_back(self, values: Indices) -> Indices:
        left, right = np.divmod(values, self._columns)
        for number in reversed(range(ROUNDS)):
            if number % 2 == 0:
                left = (left - self._shift(number, right)) % self._rows
            else:
                right = (right - self._shift(number, left)) % self._columns
        return left * self._columns + right

    def _shift(self, number: int, places: Indices) -> Indices:
        """Return F_number at these places; a word's remainder deviates from uniform by at most sqrt(items) / 2^32."""
        size, modulus = (self._columns, self._rows) if number % 2 == 0 else (self._rows, self._columns)
        start = (number + 1) // 2 * self._columns + number // 2 * self._rows
        if places.size >= size:
            return (self._table(start, size) % modulus)[places]
        # A device has few items even in a large catalogue, so it computes only the words it needs and stores no table.
        words = stream_at(self._key, (start + places) // 4).view("<u4").astype(np.int64)
        return words[np.arange(places.size), (start + places) % 4] % modulus

    def _table(self, start: int, size: int) -> Indices:
        first, last = start // 4, -(-(start + size) // 4)
        words = stream(self._key, last - first, first).reshape(-1).view("<u4").astype(np.int64)
        return words[start - 4 * first :][:size]
