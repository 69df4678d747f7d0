"""The time of a device for its keys and correction words, compared with additive sharing of the whole matrix.

Placing its items is included. No messages are encoded, and both use the same kernel. The full matrix is shared into
existing buffers: new memory would add page faults, which are unrelated to the method. The last column is the ratio of
AES blocks alone. The matrix is nearly all AES and placement has none, so the ratio depends on the processor: it is
measured with the best instruction set and with the narrowest, which has one block in a register, as a phone has.
"""

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from secemb_shared.dpf import SessionKeys, default_backend, expand_roots
from secemb_shared.kernel import instruction_sets, select_instruction_set
from secemb_shared.labels import Label, Purpose
from secemb_shared.layout import Geometry, Placement, layout_for, plan
from secemb_shared.randomness import Indices
from secemb_tools.catalogues import WIDTH, PaperCatalogue
from secemb_tools.plan.costs import Work, fastest

LABEL = Label(bytes(32), 1, bytes(16))
SEEDS = bytes(range(16)), bytes(range(16, 32))


@dataclass(frozen=True, slots=True)
class Sharing:
    """Microseconds of a device on one catalogue."""

    catalogue: str
    place_us: float
    secemb_us: float  # including placement
    full_us: float
    blocks_ratio: float

    @property
    def ratio(self) -> float:
        """Return how many times longer the full matrix takes."""
        return self.full_us / self.secemb_us


def measure(chosen: list[PaperCatalogue], seconds: float) -> list[dict[str, Any]]:
    """Measure every chosen catalogue, with the best and the narrowest instruction set."""
    sets = instruction_sets()
    if not sets:
        return [_figures(catalogue, seconds) for catalogue in chosen]
    measured = []
    for name in dict.fromkeys([sets[0], sets[-1]]):
        select_instruction_set(name)
        measured += [_figures(catalogue, seconds) | {"backend": name} for catalogue in chosen]
    select_instruction_set(sets[0])
    return measured


def _figures(catalogue: PaperCatalogue, seconds: float) -> dict[str, Any]:
    sharing = _sharing(catalogue, seconds)
    return asdict(sharing) | {"ratio": sharing.ratio, "backend": "portable"}


def _sharing(catalogue: PaperCatalogue, seconds: float) -> Sharing:
    geometry = plan(items=catalogue.items, capacity=catalogue.capacity, row_width=WIDTH).geometry
    items = np.random.default_rng(0).permutation(catalogue.items)[: catalogue.capacity]
    works = {
        "place": lambda: _place(catalogue, geometry, items),
        "secemb": _secemb(catalogue, geometry, items),
        "full": _full_matrix(catalogue),
    }
    times = fastest(works, seconds)
    return Sharing(
        catalogue=catalogue.name,
        place_us=times["place"] * 1e6,
        secemb_us=times["secemb"] * 1e6,
        full_us=times["full"] * 1e6,
        blocks_ratio=catalogue.items * WIDTH / 4 / _secemb_blocks(geometry),
    )


def _secemb_blocks(geometry: Geometry) -> int:
    """Return the AES blocks of PathGen, ConvertGen and the roots."""
    return geometry.slots * (4 * geometry.depth + 2 * -(-WIDTH // 4) + 2)


def _place(catalogue: PaperCatalogue, geometry: Geometry, items: Indices) -> Placement:
    return layout_for(geometry, capacity=catalogue.capacity, label=LABEL).place(items)


def _secemb(catalogue: PaperCatalogue, geometry: Geometry, items: Indices) -> Work:
    backend, slots = default_backend(), geometry.slots
    payload = np.ones((slots, WIDTH), dtype=np.uint32)

    def share() -> object:
        alpha = _place(catalogue, geometry, items).leaves
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
