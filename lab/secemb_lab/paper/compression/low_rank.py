"""Low-rank compressors: an update as the product of a tall and a small matrix, of the paper's rank."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from secemb_lab.paper.compression.compressor import FLOAT_BYTES, Compressor, shape_of, touched
from secemb_sdk.models import Floats
from secemb_sdk.models.update import Numbers
from secemb_shared.messages import RoundSpec
from secemb_shared.randomness import RandomBytes


@dataclass(frozen=True, slots=True)
class Svd(Compressor):
    """The nearest update of a rank: the largest singular values, times the left vectors, and the right vectors."""

    name: ClassVar[str] = "SVD"
    rank: int

    def size(self, round_: RoundSpec) -> int:
        """Return a float for each element of both matrices."""
        return FLOAT_BYTES * self.rank * sum(shape_of(round_))

    def compress(self, round_: RoundSpec, update: Floats, random_bytes: RandomBytes) -> bytes:
        """Return U·S, (items, rank), and V, (row width, rank); nothing is drawn."""
        (items, width), rows = shape_of(round_), touched(update)
        tall, small = np.zeros((items, self.rank), np.float32), np.zeros((width, self.rank), np.float32)
        if rows.size:
            left, values, right = np.linalg.svd(update[rows], full_matrices=False)
            count = min(self.rank, values.size)
            tall[rows, :count] = left[:, :count] * values[:count]
            small[:, :count] = right[:count].T
        return tall.tobytes() + small.tobytes()

    def _read(self, round_: RoundSpec, message: bytes) -> Numbers:
        items, _ = shape_of(round_)
        both = np.frombuffer(message, dtype=np.float32).reshape(-1, self.rank)
        found: Numbers = both[:items] @ both[items:].T
        return found


@dataclass(frozen=True, slots=True)
class CoLR(Compressor):
    """The update of A where the table is Q + A·Bᵀ, and B, drawn for the round, is shared by all (Nguyen et al. 2024).

    The columns of B are orthogonal and as long as √(row width / rank), so that A·Bᵀ is the update on average. B is
    derived from the round, so it is not sent.
    """

    name: ClassVar[str] = "CoLR"
    rank: int

    def size(self, round_: RoundSpec) -> int:
        """Return a float for each element of A."""
        return FLOAT_BYTES * self.rank * round_.task.items

    def compress(self, round_: RoundSpec, update: Floats, random_bytes: RandomBytes) -> bytes:
        """Return the gradient by A, (items, rank): that by the table, times B; the device draws nothing."""
        rows, by_a = touched(update), np.zeros((round_.task.items, self.rank), dtype=np.float32)
        by_a[rows] = update[rows] @ self.basis(round_)
        return by_a.tobytes()

    def _read(self, round_: RoundSpec, message: bytes) -> Numbers:
        found: Numbers = np.frombuffer(message, dtype=np.float32).reshape(-1, self.rank) @ self.basis(round_).T
        return found

    def basis(self, round_: RoundSpec) -> Floats:
        """Return B of a round, (row width, rank)."""
        width = round_.task.row_width
        random = np.random.default_rng([int.from_bytes(round_.task.task_id, "little"), round_.number])
        directions, _ = np.linalg.qr(random.standard_normal((width, self.rank)))
        found: Floats = (directions * (width / self.rank) ** 0.5).astype(np.float32)
        return found
