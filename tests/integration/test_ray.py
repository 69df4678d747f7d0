"""A real Ray cluster: the same bytes as threads, workers that are killed, and a cluster that goes and comes back.

tests/unit/test_workers.py has the same engine with workers in this process, where every call can be made to fail.
"""

import asyncio
import os
import signal
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from importlib.util import find_spec

import pytest
from tests.unit.sessions import SHAPES, bit_table, make_round, make_task, seeded
from tests.unit.test_workers import CHECK_KEY, by_threads, outcome, sessions_of

from secemb_lab.scale.cluster import LocalCluster, local_cluster
from secemb_party.compute.errors import ComputeUnavailableError
from secemb_party.compute.ray.messages import Options
from secemb_party.compute.ray.remote import RayCompute
from secemb_party.compute.threads import Workers
from secemb_party.evaluation import KeysMessage
from secemb_shared.messages import TaskSpec
from secemb_shared.messages.privacy import BudgetLine, Privacy
from secemb_shared.randomness import RandomBytes

pytestmark = [
    pytest.mark.asyncio,
    pytest.mark.skipif(find_spec("ray") is None, reason="Ray is not installed"),
    pytest.mark.timeout(300),
]
PRIVACY = Privacy(unit="user", delta="0.00001", train=BudgetLine(clip=256, multiplier="3", epsilon="4"))
NORM = 2**21
TASKS: list[TaskSpec] = [
    SHAPES["binned"],
    SHAPES["direct"],
    SHAPES["planned"],
    SHAPES["wide"],
    make_task(ring_bits=64, norm_bound=NORM),
    make_task(privacy=PRIVACY),
]


@pytest.fixture(scope="module")
def cluster() -> Iterator[LocalCluster]:
    with local_cluster(cpus=3) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def engine(cluster: LocalCluster) -> Iterator[RayCompute]:
    with an_engine(replace(cluster.options(2), connect_seconds=8.0)) as engine:
        assert engine.at_ray.connected(120.0), engine.fault()
        yield engine


@contextmanager
def an_engine(options: Options) -> Iterator[RayCompute]:
    """Run an engine until the end of a block."""
    threads = Workers(threads=1)
    engine = RayCompute(1, threads, options, random_bytes=fresh_noise())
    try:
        yield engine
    finally:
        engine.close()
        threads.close()


def fresh_noise() -> RandomBytes:
    """Return the same noise for each engine."""
    return seeded("noise")


def worker_processes(engine: RayCompute) -> list[int]:
    """Return the processes of the workers."""
    link = engine.at_ray.link()
    found: list[int] = link.each("process", dict.fromkeys(range(2), ()))
    return found


async def test_every_layout_ring_and_noise_gives_the_same_bytes_as_threads(engine: RayCompute) -> None:
    for task in TASKS:
        round_ = make_round(task)
        sessions = sessions_of(round_)
        engine.random_bytes = fresh_noise()
        assert await outcome(engine, round_, sessions) == await by_threads(round_, sessions, fresh_noise())


async def test_killed_workers_are_replaced_and_nothing_is_counted_twice(engine: RayCompute) -> None:
    round_ = make_round(make_task(norm_bound=NORM))
    sessions = sessions_of(round_)
    keys = [KeysMessage(one.session_id, one.keys) for one in sessions]
    prepared = await engine.prepare(round_, bit_table(round_.task), CHECK_KEY)
    before, total = await prepared.accept(keys), prepared.sum()
    await total.add(sessions)
    first, second = worker_processes(engine)
    os.kill(first, signal.SIGKILL)
    assert await prepared.accept(keys) == before
    with pytest.raises(ComputeUnavailableError):
        await total.add(sessions)
    os.kill(second, signal.SIGKILL)
    assert (await outcome(engine, round_, sessions))[1:] == (await by_threads(round_, sessions))[1:]
    assert engine.fault() is None


async def test_workers_without_room_are_refused_with_what_to_do(cluster: LocalCluster) -> None:
    options = replace(cluster.options(9), start_seconds=2.0)
    with an_engine(options) as engine:
        await until(lambda: "no room" in (engine.fault() or ""))
        assert "lower [compute] workers" in (engine.fault() or "")


async def test_a_cluster_that_is_gone_is_named_and_one_that_is_back_is_used(
    cluster: LocalCluster, engine: RayCompute
) -> None:
    round_ = make_round(make_task())
    sessions = sessions_of(round_)
    keys = [KeysMessage(one.session_id, one.keys) for one in sessions]
    prepared = await engine.prepare(round_, bit_table(round_.task), CHECK_KEY)
    before = await prepared.accept(keys)
    await asyncio.to_thread(cluster.stop)
    with pytest.raises(ComputeUnavailableError):
        await forever(lambda: prepared.accept(keys))  # a worker may live a moment longer than its node
    await until(lambda: "Ray cannot be reached" in (engine.fault() or ""))
    await asyncio.to_thread(cluster.start)
    await until(lambda: engine.fault() is None)
    assert await prepared.accept(keys) == before


async def forever(call: Callable[[], Awaitable[object]]) -> None:
    """Repeat a call until it raises."""
    while await call():  # noqa: ASYNC110
        await asyncio.sleep(0.1)


async def until(condition: Callable[[], bool]) -> None:
    """Wait for what other processes do."""
    while not condition():  # noqa: ASYNC110
        await asyncio.sleep(0.05)
