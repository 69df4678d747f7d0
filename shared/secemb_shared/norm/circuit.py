"""The proved statement as sums that both the device and the servers compute: one inner product over the whole witness.

The vector z holds the projections R_1 … R_K and the bits u: a carry for each projection, then the slack. With the
weights w = (1, …, 1, ρ¹, ρ², …) the statement is Σ w z² = T − Σ 2^j s_j + Σ ρ^i u_i.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from secemb_shared.dpf import RingArray
from secemb_shared.dpf.backend import PROJECTIONS
from secemb_shared.norm.shape import ROWS, NormShape

Values = Sequence[int]


def lifted(shape: NormShape, party: int, projections: RingArray) -> list[int]:
    """Return a party's projections as integers whose sum is R + 2^b · carry."""
    half, above = 1 << (shape.bits - 1), (1 << shape.bits) - 1  # elements may have more bits than the ring
    if party:
        return [value & above for value in projections.tolist()]
    moved = projections + np.asarray(half, dtype=projections.dtype)
    return [(value & above) - half for value in moved.tolist()]


def witness_of(shape: NormShape, lifted0: Values, lifted1: Values) -> list[int] | None:
    """Return the carries and the bits of the slack, or None if the update is too long for the bound."""
    half = 1 << (shape.bits - 1)
    sums = [first + second for first, second in zip(lifted0, lifted1, strict=True)]
    carries = [(total + half) >> shape.bits for total in sums]
    slack = shape.threshold - sum(value * value for value in integers(shape, sums, carries))
    return None if slack < 0 else carries + [slack >> at & 1 for at in range(shape.slack_bits)]


def integers(shape: NormShape, lifted: Values, carries: Values) -> list[int]:
    """Return R_k, or a share of it from shares: the lifted projections minus their carries."""
    return [value - (carry << shape.bits) for value, carry in zip(lifted, carries, strict=True)]


@dataclass(frozen=True, slots=True, repr=False)
class Assignment:
    """The vector z or a party's share of it, and its products with the weights, in rows of columns."""

    z: list[list[int]]  # (ROWS, columns)
    weighted: list[list[int]]
    linear: int  # the right side of the statement; `constant` of one party, 0 of the other

    @classmethod
    def of(cls, shape: NormShape, rho: int, lifted: Values, witness: Values, *, constant: int) -> "Assignment":
        """Arrange z in columns: everything here is linear, so shares give shares."""
        prime = shape.field.prime
        powers = shape.field.powers(rho, shape.witness)
        weighted = [power * bit % prime for power, bit in zip(powers, witness, strict=True)]
        numbers = [value % prime for value in integers(shape, lifted, witness[:PROJECTIONS])]
        slack = sum(bit << at for at, bit in enumerate(witness[PROJECTIONS:]))
        linear = (constant - slack + sum(weighted)) % prime
        return cls(_rows(shape, [*numbers, *witness]), _rows(shape, [*numbers, *weighted]), linear)


def _rows(shape: NormShape, values: list[int]) -> list[list[int]]:
    padded = values + [0] * (ROWS * shape.columns - len(values))
    return [padded[at : at + shape.columns] for at in range(0, len(padded), shape.columns)]
