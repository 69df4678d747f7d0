"""Fifty devices of the SDK and two real servers: the model moves exactly as it would in a plaintext run."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from tests.e2e.servers import Servers, set_up

from secemb_sdk import Contributed, Device, NotNow, Policy
from secemb_sdk.models import Floats, Gradients, MatrixFactorisation, PrivateState, Ratings, fit_bound, learn
from secemb_server0.gradient import Gradient
from secemb_server0.optimiser import Optimiser
from secemb_server0.reconstruct import make_optimiser
from secemb_shared.messages import TaskSpec
from secemb_shared.messages.canonical import decimal
from secemb_shared.prg import RingArray
from secemb_shared.randomness import Indices

DEVICES, ROUNDS, DIMENSION, CAPACITY = 50, 3, 8, 12
TASK = {
    "items": 400,
    "width": DIMENSION + 1,
    "capacity": CAPACITY,
    "dense-size": 0,
    "cohort": DEVICES,
    "min-cohort": DEVICES,  # so that a round waits for everybody
    "clip": 64,
    "fraction-bits": 16,
    "join-seconds": 120,
    "upload-seconds": 240,
    "optimiser": "adam",
    "row-rate": 0.025,
    "dense-rate": 0.001,
    "initial-scale": 0.1,
}


class Watched(MatrixFactorisation):
    """Matrix factorisation whose first private part is known, and that tells in which order items came."""

    def __init__(self, number: int) -> None:
        super().__init__(dimension=DIMENSION)
        self._number = number
        self.order: Indices = np.empty(0, dtype=np.int64)

    def first_private(self, random: np.random.Generator) -> Floats:
        return super().first_private(np.random.default_rng(self._number))

    def gradients(self, rows: Floats, dense: Floats, private: Floats, ratings: Ratings) -> Gradients:
        self.order = ratings.items
        return super().gradients(rows, dense, private, ratings)


@dataclass
class Twin:
    """The same person in a world without secrets: reads the plain table and hands over a plain update."""

    number: int
    ratings: dict[int, float]
    model: Watched = field(init=False)
    state: PrivateState = field(init=False)

    def __post_init__(self) -> None:
        self.model = Watched(self.number)
        self.state = PrivateState.begin(MatrixFactorisation(dimension=DIMENSION), np.random.default_rng(self.number))

    def learn(self, table: Floats, task: TaskSpec, sums: RingArray) -> None:
        """Add this person's update to the sums, in the ring."""
        items = self.model.order
        if items.size == 0:
            return
        values = np.array([self.ratings[int(item)] for item in items], dtype=np.float32)
        rate, dense = decimal(task.row_rate), np.zeros(0, dtype=np.float32)
        plain = MatrixFactorisation(dimension=DIMENSION)
        rows, _, self.state = learn(plain, self.state, table[items], dense, Ratings(items, values), rate=rate)
        np.add.at(sums, items, task.ring.encode(fit_bound(rows, task)[0], bound=task.bound))


def taste(number: int, items: int) -> dict[int, float]:
    """Return some ratings: none at all for one device, more than there is room for in another."""
    random = np.random.default_rng(1000 + number)
    count = {0: 0, 1: 3 * CAPACITY}.get(number, int(random.integers(1, CAPACITY)))
    rated = random.choice(items, count, replace=False)
    return {int(item): float(random.integers(1, 6)) for item in rated}


@asynccontextmanager
async def devices_of(servers: Servers, folder: Path, twins: list[Twin]) -> AsyncIterator[list[Device]]:
    async with AsyncExitStack() as stack:
        devices = []
        for twin in twins:
            opening = Device.open(
                home=folder / f"device{twin.number}",
                servers=(servers.pair[0].url, servers.pair[1].url),
                task=servers.task.task_id.hex(),
                token=servers.tokens[twin.number],
                model=twin.model,
                policy=Policy(pace_seconds=0.0, seconds=100.0),
                hold_out=0.0,
            )
            device = await stack.enter_async_context(opening)
            device.log_many(twin.ratings)
            devices.append(device)
        yield devices


async def take_part(device: Device) -> Contributed:
    while True:
        outcome = await device.contribute()
        if isinstance(outcome, Contributed):
            return outcome
        assert isinstance(outcome, NotNow), outcome
        await asyncio.sleep(min(outcome.seconds, 0.5))


def step(servers: Servers, twins: list[Twin], optimiser: Optimiser, version: int) -> tuple[Floats, RingArray]:
    """Return the table that the plain run arrives at from a published version."""
    task, before = servers.task, servers.model(0, version)
    sums = np.zeros((task.items, task.row_width), dtype=task.ring.dtype)
    for twin in twins:
        twin.learn(before.rows, task, sums)
    none = np.zeros(0, dtype=task.ring.dtype)
    after = optimiser.step(before, Gradient.mean(task.ring, rows=sums, dense=none, sessions=len(twins)))
    return after.rows, sums


async def run_rounds(servers: Servers, folder: Path) -> None:
    twins = [Twin(number, taste(number, servers.task.items)) for number in range(DEVICES)]
    optimiser = make_optimiser(servers.task)
    async with devices_of(servers, folder, twins) as devices:
        for version in range(ROUNDS):
            outcomes = await asyncio.gather(*(take_part(device) for device in devices))
            receipts = [outcome.receipt for outcome in outcomes]
            assert {(one.round, one.model_version, one.kind) for one in receipts} == {(version, version, "train")}
            assert {outcome.trouble for outcome in outcomes} == {None}
            assert len({(one.sent, one.slots) for one in receipts}) == 1, "devices do not look alike"
            await published(servers, version + 1)
            table, sums = step(servers, twins, optimiser, version)
            assert sums.any()
            for role in (0, 1):
                assert np.array_equal(servers.model(role, version + 1).rows.view(np.uint32), table.view(np.uint32))
        check_what_is_left(devices, twins)


async def published(servers: Servers, version: int) -> None:
    for _ in range(400):
        shown = [
            server.ask("SELECT max(version) FROM model_versions WHERE published_at IS NOT NULL")
            for server in servers.pair
        ]
        if all(found == [(version,)] for found in shown):
            return
        await asyncio.sleep(0.05)
    raise AssertionError(f"version {version} was not published")


def check_what_is_left(devices: list[Device], twins: list[Twin]) -> None:
    for device, twin in zip(devices, twins, strict=True):
        exported = device.export()
        assert [one.round for one in device.receipts()] == list(range(ROUNDS))
        assert all(one.truncated == max(0, len(twin.ratings) - CAPACITY) for one in device.receipts())
        if twin.ratings:
            assert exported["private"]["steps"] == ROUNDS
            assert exported["private"]["values"] == twin.state.values.tolist()
        else:
            assert exported["private"] is None


def test_fifty_devices_move_the_model_as_a_plaintext_run_does(tmp_path: Path) -> None:
    servers = set_up(tmp_path, devices=DEVICES, changes=TASK)
    try:
        servers.start()
        asyncio.run(run_rounds(servers, tmp_path / "homes"))
    finally:
        servers.end()
