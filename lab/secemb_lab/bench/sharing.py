"""The device's cryptography alone: keys and ConvertGen against additive sharing of the whole matrix.

No placement and no messages on either side, the same kernel for both. The full matrix is shared into existing
buffers: new memory would add page faults, which say nothing about the method. The last column is the ratio of AES
blocks alone.
"""

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from secemb_shared.dpf import SessionKeys, default_backend, expand_roots
from secemb_shared.labels import Label, Purpose
from secemb_shared.layout import Geometry, plan
from secemb_tools.catalogues import WIDTH, PaperCatalogue
from secemb_tools.plan.costs import Work, fastest

LABEL = Label(bytes(32), 1, bytes(16))
SEEDS = bytes(range(16)), bytes(range(16, 32))


@dataclass(frozen=True, slots=True)
class Sharing:
    """Microseconds of a device on one catalogue."""

    catalogue: str
    secemb_us: float
    full_us: float
    blocks_ratio: float

    @property
    def ratio(self) -> float:
        """Return how many times longer the full matrix takes."""
        return self.full_us / self.secemb_us


def measure(chosen: list[PaperCatalogue], seconds: float) -> list[dict[str, Any]]:
    """Measure every chosen catalogue."""
    measured = [_sharing(catalogue, seconds) for catalogue in chosen]
    return [asdict(sharing) | {"ratio": sharing.ratio} for sharing in measured]


def _sharing(catalogue: PaperCatalogue, seconds: float) -> Sharing:
    geometry = plan(items=catalogue.items, capacity=catalogue.capacity, row_width=WIDTH).geometry
    times = fastest({"secemb": _secemb(geometry), "full": _full_matrix(catalogue)}, seconds)
    return Sharing(
        catalogue=catalogue.name,
        secemb_us=times["secemb"] * 1e6,
        full_us=times["full"] * 1e6,
        blocks_ratio=catalogue.items * WIDTH / 4 / _secemb_blocks(geometry),
    )


def _secemb_blocks(geometry: Geometry) -> int:
    """Return the AES blocks of PathGen, ConvertGen and the roots."""
    return geometry.slots * (4 * geometry.depth + 2 * -(-WIDTH // 4) + 2)


def _secemb(geometry: Geometry) -> Work:
    backend, slots = default_backend(), geometry.slots
    alpha = np.zeros(slots, dtype=np.int64)
    payload = np.ones((slots, WIDTH), dtype=np.uint32)

    def share() -> object:
        keys = SessionKeys.of(LABEL)
        roots = [expand_roots(LABEL, seed, slots, backend) for seed in SEEDS]
        words, leaf0, leaf1 = backend.generate(keys, roots[0], roots[1], alpha, geometry.depth)
        return words, backend.convert_gen(keys.convert, leaf0, leaf1, payload)

    return share


def _full_matrix(catalogue: PaperCatalogue) -> Work:
    backend, shape = default_backend(), (catalogue.items, WIDTH)
    matrix = np.ones(shape, dtype=np.uint32)
    mask, share = np.zeros_like(matrix), np.zeros_like(matrix)
    key = LABEL.key(Purpose.SUM_SHARE, SEEDS[0])

    def share_all() -> object:
        mask.fill(0)
        backend.add_stream(key, mask, negative=False)
        return np.subtract(matrix, mask, out=share)

    return share_all
