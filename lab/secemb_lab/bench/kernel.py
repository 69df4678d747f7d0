"""The kernel's operations, each relative to a bare loop of the AES hash in the same run; and the noise of a share."""

from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
from rich.console import Console

from secemb_shared.dpf import HASH_BYTES, Backend, HeldKeys, LeafTable, SessionKeys, SlotChecks
from secemb_shared.dpf._native import Native
from secemb_shared.dpf._portable import Portable
from secemb_shared.kernel import instruction_sets, native_available, select_instruction_set
from secemb_shared.layout import Geometry
from secemb_shared.privacy import draw
from secemb_shared.privacy.gaussian import default_judge, judge
from secemb_tools.plan.costs import Work, fastest

WIDTH = 65
BLOCKS = 17  # of Convert for 65 numbers of 32 bits
BARE_BLOCKS = 8192
SESSIONS = 32


@dataclass(frozen=True, slots=True)
class Shape:
    """A catalogue's plan: the number of slots of a session and of leaves in each tree."""

    name: str
    slots: int
    leaves: int
    bins: int  # of them are evaluated for many sessions at once, to keep measurements short

    def geometry(self, bins: int) -> Geometry:
        """Return the geometry with some of the bins only."""
        return Geometry(items=self.leaves * bins, tables=1, bins=bins, slots_per_bin=1)


SHAPES = (Shape("ML1M: 328 slots of 48 leaves", 328, 48, 16), Shape("Yelp: 548 slots of 682 leaves", 548, 682, 8))


class Bench:
    """Random keys and rows for one shape, and every operation as a function to time."""

    def __init__(self, shape: Shape, sessions: int = SESSIONS) -> None:
        self.shape, self.sessions = shape, sessions
        self._random = np.random.default_rng(0)
        self.whole, self.part = shape.geometry(shape.slots), shape.geometry(shape.bins)
        self.depth = self.whole.depth
        self.session = self._held(1, shape.slots)
        self.batch = self._held(sessions, shape.bins)
        items = self.part.items
        order = self._random.permutation(items).astype(np.int32).reshape(shape.bins, shape.leaves)
        self.table = LeafTable(self.part, order)
        self.spread = LeafTable(self.whole, np.resize(order, (shape.slots, shape.leaves)))  # all slots of a session
        self.words = self._numbers(sessions, shape.bins, WIDTH)
        self.rows = self._numbers(items, WIDTH + 1)
        self.sums = np.zeros((items, WIDTH), dtype=np.uint32)

    def work(self, backend: Backend) -> dict[str, Work]:
        """Return the operations by name, as functions to time."""
        keys, roots = SessionKeys(*(self._bytes(16).tobytes() for _ in range(3))), self._bytes(2, self.shape.slots, 16)
        alpha = np.zeros(self.shape.slots, dtype=np.int64)
        payload = self._numbers(self.shape.slots, WIDTH)
        checks = SlotChecks(self._bytes(1, 16), self._bytes(1, self.shape.slots, HASH_BYTES))
        secrets = self._bytes(4, 16)
        _, leaf0, leaf1 = backend.generate(keys, roots[0], roots[1], alpha, self.depth)
        return {
            "tree": self._tree(backend),
            "tree + Convert + accumulate": lambda: backend.accumulate(self.batch, self.table, self.words, self.sums),
            "tree + XOR answer": lambda: backend.answer(self.batch, self.table, self.rows),
            CHECKED: lambda: backend.answer_checked(self.session, self.spread, self.rows, checks, secrets),
            UNCHECKED: lambda: backend.answer(self.session, self.spread, self.rows),
            "key generation": lambda: backend.generate(keys, roots[0], roots[1], alpha, self.depth),
            "ConvertGen": lambda: backend.convert_gen(keys.convert, leaf0, leaf1, payload),
        }

    def units(self) -> dict[str, int]:
        """Return the divisor of each operation's time: leaves, or slots of one session."""
        together = self.sessions * self.part.items
        return {
            "tree": self.whole.items,
            "tree + Convert + accumulate": together,
            "tree + XOR answer": together,
            CHECKED: self.whole.items,
            UNCHECKED: self.whole.items,
            "key generation": self.shape.slots,
            "ConvertGen": self.shape.slots,
        }

    def _tree(self, backend: Backend) -> Work:
        if isinstance(backend, Native):
            states = np.empty((-(-self.shape.slots // 4), self.shape.leaves, 4, 16), dtype=np.uint8)
            return lambda: backend.expand_groups(self.session, states)
        return lambda: backend.expand(self.session, self.shape.leaves)

    def _held(self, sessions: int, slots: int) -> HeldKeys:
        return HeldKeys(
            0,
            self._bytes(sessions, 3, 16),
            self._bytes(sessions, slots, 16),
            self._bytes(sessions, self.depth, slots, 16),
            self._bytes(sessions, self.depth, slots) & np.uint8(1),
        )

    def _bytes(self, *shape: int) -> Any:
        return self._random.integers(0, 256, shape, dtype=np.uint8)

    def _numbers(self, *shape: int) -> Any:
        return self._random.integers(0, 2**32, shape, dtype=np.uint32)


CHECKED, UNCHECKED = "tree + XOR answer + fingerprint", "tree + XOR answer of one session"


def bare(backend: Backend) -> Work:
    """Return the lower bound: a loop of H_K over a buffer in the cache."""
    blocks = np.random.default_rng(1).integers(0, 256, (BARE_BLOCKS, 16), dtype=np.uint8)
    if isinstance(backend, Native):
        out = np.empty_like(blocks)
        return lambda: backend.hash_into(bytes(16), blocks, out)
    return lambda: backend.hash_blocks(bytes(16), blocks)


def measure(console: Console, seconds: float) -> dict[str, Any]:
    """Time every operation of every instruction set and of the portable backend, and two threads."""
    figures: dict[str, Any] = {"operations": [], "threads": []}
    sets = instruction_sets()
    for name in sets:
        with console.status(f"kernel, {name}"):
            select_instruction_set(name)
            figures["operations"] += _operations(Native(), name, seconds)
    if sets:
        select_instruction_set(sets[0])
        with console.status("kernel, threads"):
            figures["threads"] = _threads(seconds)
    with console.status("portable backend"):
        figures["operations"] += _operations(Portable(), "portable", seconds / 2)
    return figures


def _operations(backend: Backend, name: str, seconds: float) -> list[dict[str, Any]]:
    rows = []
    for shape in SHAPES:
        bench = Bench(shape, SESSIONS if name != "portable" else 1)
        best = fastest({"bare": bare(backend), **bench.work(backend)}, seconds)
        block = best.pop("bare") / BARE_BLOCKS * 1e9
        row: dict[str, Any] = {"backend": name, "shape": shape.name, "depth": bench.depth, "block_ns": block}
        row["ns"] = {work: best[work] / unit * 1e9 for work, unit in bench.units().items()}
        row["tree_blocks"] = row["ns"]["tree"] / block
        # The time that the check adds to a session. Keys of leaves are shared by all slots of a session.
        added, session = row["ns"][CHECKED] - row["ns"][UNCHECKED], ("tree + Convert + accumulate", "tree + XOR answer")
        row["check_share"] = added / sum(row["ns"][work] for work in session)
        row["convert_share"] = BLOCKS * block / row["ns"]["tree + Convert + accumulate"]
        rows.append(row)
    return rows


def _threads(seconds: float) -> list[dict[str, Any]]:
    rows = []
    for shape in (replace(shape, bins=4 * shape.bins) for shape in SHAPES):
        bench = Bench(shape)
        works = {
            f"{work}, {threads} threads": bench.work(Native(threads=threads))[work]
            for work in ("tree + Convert + accumulate", "tree + XOR answer")
            for threads in (1, 2)
        }
        best = fastest(works, seconds)
        for work in ("tree + Convert + accumulate", "tree + XOR answer"):
            speedup = best[f"{work}, 1 threads"] / best[f"{work}, 2 threads"]
            rows.append({"shape": shape.name, "work": work, "speedup": speedup})
    return rows


NUMBERS = 10**7
_PIECE = 1 << 16  # in the way a server adds noise, piece by piece
_VARIANCE = 1 << 32  # a power of four, for which the fewest proposals are accepted: any other σ is slightly faster


def measure_noise(seconds: float) -> list[dict[str, Any]]:
    """Time the drawing of one piece, and return the seconds for as many numbers as a large model needs."""
    best = fastest(_noise_works(), seconds)
    return [{"backend": name, "seconds": took * NUMBERS / _PIECE} for name, took in best.items()]


def show_noise(console: Console, figures: list[dict[str, Any]]) -> None:
    """Print a line for each backend."""
    for row in figures:
        console.print(f"noise, {row['backend']}: {row['seconds']:.2f} s for 10^7 numbers on one core")


def _noise_works() -> dict[str, Work]:
    one = partial(draw, _PIECE, variance=_VARIANCE)
    works: dict[str, Work] = {"portable": partial(one, judge=judge, backend=Portable())}
    if native_available():
        works = {"kernel": partial(one, judge=default_judge(), backend=Native()), **works}
    return works
