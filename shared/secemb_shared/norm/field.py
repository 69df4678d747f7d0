"""The prime fields of the norm proof, large enough that no sum of squares wraps around."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from secemb_shared import prg
from secemb_shared.errors import EncodingError, LengthError


@dataclass(frozen=True, slots=True)
class Field:
    """The integers modulo a prime just below a power of two whose top bit is free."""

    prime: int
    size: int  # bytes per element

    def encode(self, values: Iterable[int]) -> bytes:
        """Return reduced elements as transmitted: little-endian."""
        return b"".join(value.to_bytes(self.size, "little") for value in values)

    def decode(self, data: bytes, count: int) -> list[int]:
        """Return `count` elements; refuse any other length, and numbers that are not below the prime."""
        if len(data) != count * self.size:
            raise LengthError(f"expected {count * self.size} bytes for {count} field elements, got {len(data)}")
        values = self._groups(data)
        if max(values, default=0) >= self.prime:
            raise EncodingError("a field element must be less than the prime")
        return values

    def stream(self, key: bytes, count: int, *, above: int = -1) -> list[int]:
        """Return uniform elements larger than `above` from the stream of an AES key, by rejection."""
        top = (1 << (8 * self.size - 1)) - 1
        found: list[int] = []
        first, blocks = 0, self.size // prg.BLOCK
        while len(found) < count:
            groups = count - len(found) + 1  # one more than needed, so that a second iteration almost never happens
            data = prg.stream(key, groups * blocks, first).tobytes()
            first += groups * blocks
            candidates = (value & top for value in self._groups(data))
            found += [value for value in candidates if above < value < self.prime]
        return found[:count]

    def powers(self, base: int, count: int) -> list[int]:
        """Return the powers of `base`, starting with the first."""
        found, power = [], 1
        for _ in range(count):
            power = power * base % self.prime
            found.append(power)
        return found

    def lagrange(self, degree: int, point: int) -> list[int]:
        """Return the weights that map a polynomial's values at 0 … degree to its value at another `point`."""
        p = self.prime
        whole = 1
        for node in range(degree + 1):
            whole = whole * (point - node) % p
        weights = []
        for node in range(degree + 1):
            denominator = point - node
            for other in range(degree + 1):
                denominator = denominator * (node - other if other != node else 1) % p
            weights.append(whole * pow(denominator, -1, p) % p)
        return weights

    def dot(self, left: Sequence[int], right: Sequence[int]) -> int:
        """Return Σ left · right; the sum is reduced once."""
        return sum(map(int.__mul__, left, right)) % self.prime

    def _groups(self, data: bytes) -> list[int]:
        size = self.size
        return [int.from_bytes(data[at : at + size], "little") for at in range(0, len(data), size)]


_SMALL = Field(2**127 - 1, 16)
FIELDS = {24: _SMALL, 32: _SMALL, 64: Field(2**255 - 19, 32)}  # by the bits of the ring
