"""What the tests of the core share: this machine's backends, small tasks, seeded randomness and whole rounds."""

import hashlib
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from secemb_lab.party_round import PartyRound
from secemb_sdk.round.session import DeviceSession
from secemb_shared.dpf import Backend, Blocks, HeldKeys, LeafTable, RingArray, SessionKeys, SlotChecks
from secemb_shared.dpf._native import Native
from secemb_shared.dpf._portable import Portable
from secemb_shared.kernel import instruction_sets, native_available, select_instruction_set
from secemb_shared.labels import Label
from secemb_shared.layout import PADDING, Geometry, plan
from secemb_shared.messages import RoundSpec, TaskSpec
from secemb_shared.messages.spec import TRAIN
from secemb_shared.randomness import Indices, RandomBytes
from secemb_shared.row_words import HALF, Rows

Floats = npt.NDArray[np.floating[Any]]

# One of each: the definition, and the kernel where there is one.
BACKENDS: list[Backend] = [Portable(), *([Native()] if native_available() else [])]


def backend_name(backend: Backend) -> str:
    return type(backend).__name__.lower()


EACH_BACKEND = pytest.mark.parametrize("backend", BACKENDS, ids=backend_name)


@dataclass(frozen=True)
class Engine:
    """One way to compute on this machine: the definition, or an instruction set with a number of threads."""

    instruction_set: str | None = None
    threads: int = 1

    def __str__(self) -> str:
        return f"{self.instruction_set}-{self.threads}" if self.instruction_set else "portable"

    @contextmanager
    def running(self) -> Iterator[Backend]:
        """Hand out the backend while its instruction set is selected; the best one is selected again afterwards."""
        if self.instruction_set is None:
            yield Portable()
            return
        select_instruction_set(self.instruction_set)
        try:
            yield Native(threads=self.threads)
        finally:
            select_instruction_set(instruction_sets()[0])


ENGINES = [Engine(), *(Engine(name, threads) for name in instruction_sets() for threads in (1, 2))]


def seeded(seed: object) -> RandomBytes:
    """Return a source of random bytes that is the same in every run and on every machine."""
    served = 0

    def random_bytes(count: int) -> bytes:
        nonlocal served
        served += 1
        return hashlib.shake_128(f"{seed}/{served}".encode()).digest(count)

    return random_bytes


def rng_of(*seed: int) -> np.random.Generator:
    return np.random.default_rng(seed)


def random_ring(rng: np.random.Generator, shape: int | tuple[int, ...], bits: int) -> RingArray:
    dtype = np.uint64 if bits == 64 else np.uint32
    return rng.integers(0, 2**bits, size=shape, dtype=dtype)


def random_blocks(rng: np.random.Generator, *shape: int) -> npt.NDArray[np.uint8]:
    return rng.integers(0, 256, size=(*shape, 16), dtype=np.uint8)


def ids(*numbers: int) -> Indices:
    return np.array(numbers, dtype=np.int64)


def leaf_table(geometry: Geometry, rng: np.random.Generator) -> LeafTable:
    """Deal the items at random into every table's bins, for geometries that no layout makes as well."""
    order = np.full((geometry.tables, geometry.leaves * geometry.bins), PADDING, dtype=np.int32)
    for table in order:
        table[: geometry.items] = rng.permutation(geometry.items)
    dealt = order.reshape(geometry.tables, geometry.leaves, geometry.bins).transpose(0, 2, 1)
    return LeafTable(geometry, np.ascontiguousarray(dealt).reshape(-1, geometry.leaves))


def random_keys(geometry: Geometry, sessions: int, party: int, rng: np.random.Generator) -> HeldKeys:
    """Return keys that nobody made: an evaluation must not depend on what they stand for."""
    return HeldKeys(
        party,
        random_blocks(rng, sessions, 3),
        random_blocks(rng, sessions, geometry.slots),
        random_blocks(rng, sessions, geometry.depth, geometry.slots),
        rng.integers(0, 2, size=(sessions, geometry.depth, geometry.slots), dtype=np.uint8),
    )


def both_keys(
    backend: Backend, alpha: Indices, depth: int, seed: int = 0
) -> tuple[HeldKeys, HeldKeys, npt.NDArray[np.uint8], npt.NDArray[np.uint8]]:
    """Share the point functions of one session: both parties' keys, and both parties' nodes at the leaves."""
    rng = rng_of(seed)
    keys = SessionKeys.of(Label(rng.bytes(32), 1, rng.bytes(16)))
    roots0, roots1 = random_blocks(rng, alpha.size), random_blocks(rng, alpha.size)
    words, leaf0, leaf1 = backend.generate(keys, roots0, roots1, alpha, depth)
    return HeldKeys.of(0, keys, roots0, words), HeldKeys.of(1, keys, roots1, words), leaf0, leaf1


def make_task(**changes: Any) -> TaskSpec:
    """Return a small binned task with short bins, or what `changes` make of it."""
    fields: dict[str, Any] = {
        "name": "films",
        "items": 23,
        "row_width": 5,
        "dense_size": 3,
        "capacity": 6,
        "tables": 3,
        "bins": 4,
        "ring_bits": 32,
        "fraction_bits": 12,
        "bound": 2**20,
        "cohort": 400,
        "min_cohort": 2,
    }
    return TaskSpec(**fields | changes)


def direct(**changes: Any) -> TaskSpec:
    """Return the same task in the paper's layout."""
    return make_task(**{"tables": 1, "bins": 1} | changes)


def planned(*, items: int, capacity: int, row_width: int = 5, **changes: Any) -> TaskSpec:
    """Return a task in the layout that the planner picks."""
    best = plan(items=items, capacity=capacity, row_width=row_width, ring_bits=changes.get("ring_bits", 32))
    geometry = best.geometry
    sizes = {"items": items, "capacity": best.capacity, "row_width": row_width}
    return make_task(**sizes, tables=geometry.tables, bins=geometry.bins, **changes)


# Tasks of every shape that a layout can have.
SHAPES = {
    "binned": make_task(),
    "direct": direct(),
    "planned": planned(items=101, capacity=12),
    "whole catalogue, binned": planned(items=19, capacity=19),
    "whole catalogue, direct": direct(items=19, capacity=19),
    "one item, direct": direct(items=1, capacity=1),
    "one item, binned": make_task(items=1, capacity=1, bins=1),
    "two chunks": direct(items=300, capacity=2),
    "wide": make_task(row_width=65),
    "short messages": make_task(row_bits=16, ring_bits=24, bound=2**13),
}


def make_round(
    task: TaskSpec, *, number: int = 7, model_version: int = 3, digest: bytes = bytes(32), kind: str = TRAIN
) -> RoundSpec:
    return RoundSpec(task=task, number=number, model_version=model_version, model_digest=digest, kind=kind)


def bit_table(task: TaskSpec, seed: int = 0) -> Rows:
    """Return a table of random bits: every kind of float32 is in it, NaNs with payloads too; of float16, no NaNs."""
    bits = random_ring(rng_of(seed), (task.items, task.row_width), 32)
    if task.row_bits == HALF:
        halves = bits.astype(np.uint16).view(np.float16)
        return np.where(np.isfinite(halves), halves, np.float16(0)).astype(np.float32)
    return bits.view(np.float32)


@dataclass(frozen=True)
class Device:
    """What one device asks for and adds."""

    items: Indices
    updates: Floats  # (items, width)
    dense: Floats


def make_devices(task: TaskSpec, count: int, seed: int = 0, *, most: int | None = None) -> list[Device]:
    """Return devices with random item sets, from empty to more than the capacity."""
    rng = rng_of(seed)
    largest = task.bound / 2.0**task.fraction_bits
    devices = []
    for _ in range(count):
        wanted = int(rng.integers(0, min(task.items, most or task.capacity + 2) + 1))
        items = rng.permutation(task.items)[:wanted].astype(np.int64)
        updates = rng.uniform(-largest, largest, (wanted, task.row_width))
        devices.append(Device(items, updates, rng.uniform(-largest, largest, task.dense_size)))
    return devices


@dataclass(frozen=True)
class Played:
    """What came out of a round, and what should have."""

    reads: list[tuple[Indices, Rows]]
    rows: RingArray
    dense: RingArray
    expected_rows: RingArray
    expected_dense: RingArray


def play(
    round_: RoundSpec, table: Rows, devices: Sequence[Device], backend: Backend, random_bytes: RandomBytes
) -> Played:
    """Run a whole round through both servers, every message as bytes."""
    parties = [PartyRound(round_, party, table, backend=backend) for party in (0, 1)]
    reads, row_sums, dense_sums = [], [], []
    for device in devices:
        session = DeviceSession(round_, device.items, random_bytes=random_bytes, backend=backend)
        answers = [party.keys(session.session_id, data) for party, data in zip(parties, session.keys, strict=True)]
        reads.append(session.read((answers[0], answers[1])))
        for party, data in zip(parties, session.write(device.items, device.updates, device.dense), strict=True):
            party.update(session.session_id, data)
        placed = np.isin(device.items, reads[-1][0])
        row_sums.append((device.items[placed], device.updates[placed]))
        dense_sums.append((ids(0), device.dense[None]))
    shares = [party.share(party.complete()) for party in parties]
    task = round_.task
    return Played(
        reads=reads,
        rows=task.ring.reduce(shares[0].rows + shares[1].rows),
        dense=task.ring.reduce(shares[0].dense + shares[1].dense),
        expected_rows=plain_sum(task, (task.items, task.row_width), row_sums),
        expected_dense=plain_sum(task, (1, task.dense_size), dense_sums)[0],
    )


def plain_sum(task: TaskSpec, shape: tuple[int, int], additions: Iterable[tuple[Indices, Floats]]) -> RingArray:
    """Return the fixed-point sum in exact arithmetic, without anything of the product but the number of bits."""
    total = np.zeros(shape, dtype=object)
    for items, updates in additions:
        for item, row in zip(items, updates, strict=True):
            total[item] += np.array([round(Fraction(float(x)) * 2**task.fraction_bits) for x in row], dtype=object)
    wrapped: RingArray = (total % 2**task.ring_bits).astype(task.ring.dtype)
    return wrapped


def fingerprints(backend: Backend, held: HeldKeys, leaves: int, checks: SlotChecks, keys: Blocks) -> Blocks:
    """Return the fingerprints of sessions whose slots all span the same leaves, by the operation that servers use."""
    geometry = Geometry(items=leaves, tables=1, bins=1, slots_per_bin=held.slots)
    table = LeafTable(geometry, np.arange(leaves, dtype=np.int32)[None])
    rows = np.arange(2 * leaves, dtype=np.uint32).reshape(leaves, 2)
    answers, found = backend.answer_checked(held, table, rows, checks, keys)
    assert np.array_equal(answers, backend.answer(held, table, rows))
    return found
