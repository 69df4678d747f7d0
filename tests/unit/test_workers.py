"""The engine with workers that are lost: the same bytes, an error that says what to do, and nothing half done."""

import asyncio
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from tests.unit.local_workers import LocalLink, LocalRay, local_engine
from tests.unit.sessions import SHAPES, bit_table, make_devices, make_round, make_task, seeded

from secemb_party.compute import Compute
from secemb_party.compute.errors import ComputeUnavailableError
from secemb_party.compute.ray import workers as at_ray
from secemb_party.compute.ray.messages import Options
from secemb_party.compute.ray.remote import RayCompute
from secemb_party.compute.threads import ThreadCompute, Workers
from secemb_party.evaluation import KeysMessage, SessionBodies
from secemb_sdk.round.session import DeviceSession
from secemb_shared.messages import RoundSpec, TaskSpec
from secemb_shared.messages.spec import EVALUATE, SURVEY

pytestmark = pytest.mark.asyncio
CHECK_KEY = b"a secret of both"
TASK = make_task(norm_bound=2**21)
ROUND = make_round(TASK)


@pytest.fixture
def ray(monkeypatch: pytest.MonkeyPatch) -> LocalRay:
    monkeypatch.setattr(at_ray, "_PAUSE", 0.01)
    return LocalRay()


@pytest.fixture
def engine(ray: LocalRay) -> Iterator[RayCompute]:
    with local_engine(ray) as engine:
        yield engine


def sessions_of(round_: RoundSpec, party: int = 1, count: int = 4) -> list[SessionBodies]:
    """Return what a party receives of devices that take part in training."""
    made, random_bytes = [], seeded("workers")
    for device in make_devices(round_.task, count, most=min(3, round_.task.capacity)):
        session = DeviceSession(round_, device.items, random_bytes=random_bytes)
        messages = session.write(device.items, device.updates / 8, device.dense / 8)
        made.append(SessionBodies(session.session_id, session.keys[party], messages[party]))
    return made


async def outcome(engine: Compute, round_: RoundSpec, sessions: list[SessionBodies]) -> tuple[Any, ...]:
    """Return everything that an engine says in a round of these sessions."""
    prepared = await engine.prepare(round_, bit_table(round_.task), CHECK_KEY)
    accepted = await prepared.accept([KeysMessage(one.session_id, one.keys) for one in sessions])
    total = prepared.sum()
    told = await total.add(sessions)
    await total.remove(sessions[:1])
    return accepted, told, bytes(await total.share())


async def by_threads(round_: RoundSpec, sessions: list[SessionBodies], random_bytes: Any = None) -> tuple[Any, ...]:
    threads = Workers(threads=1)
    try:
        return await outcome(ThreadCompute(1, threads, **_random(random_bytes)), round_, sessions)
    finally:
        threads.close()


def _random(random_bytes: Any) -> dict[str, Any]:
    return {} if random_bytes is None else {"random_bytes": random_bytes}


@pytest.mark.parametrize("task", [*SHAPES.values(), make_task(ring_bits=64, norm_bound=2**21), TASK])
async def test_every_shape_gives_the_same_bytes_as_threads(task: TaskSpec, engine: RayCompute) -> None:
    round_ = make_round(task)
    sessions = sessions_of(round_)
    assert await outcome(engine, round_, sessions) == await by_threads(round_, sessions)


@pytest.mark.parametrize("method", ["prepare", "answer_checked"])
async def test_a_worker_lost_while_it_answers_is_replaced_and_the_answer_is_the_same(
    method: str, engine: RayCompute, ray: LocalRay
) -> None:
    sessions = sessions_of(ROUND)
    lose_once(ray.links[0], method, place=1)
    assert await outcome(engine, ROUND, sessions) == await by_threads(ROUND, sessions)
    assert ray.replaced == 1
    assert len(ray.links) == 1


@pytest.mark.parametrize("method", ["add", "remove", "piece"])
async def test_a_worker_lost_while_it_adds_ends_the_sum_and_the_next_one_is_whole(
    method: str, engine: RayCompute, ray: LocalRay
) -> None:
    sessions = sessions_of(ROUND)
    lose_once(ray.links[0], method, place=2)
    with pytest.raises(ComputeUnavailableError, match="computed again"):
        await outcome(engine, ROUND, sessions)
    assert await outcome(engine, ROUND, sessions) == await by_threads(ROUND, sessions)


async def test_a_sum_is_not_continued_by_a_worker_that_lacks_its_beginning(engine: RayCompute, ray: LocalRay) -> None:
    sessions = sessions_of(ROUND)
    prepared = await engine.prepare(ROUND, bit_table(TASK), CHECK_KEY)
    total = prepared.sum()
    await total.add(sessions[:2])
    ray.links[0].workers[0] = None
    keys = [KeysMessage(one.session_id, one.keys) for one in sessions]
    assert await prepared.answer(keys)  # has the worker replaced
    with pytest.raises(ComputeUnavailableError):
        await total.add(sessions[2:])


async def test_without_workers_requests_are_refused_until_they_are_back(engine: RayCompute, ray: LocalRay) -> None:
    sessions = sessions_of(ROUND)
    prepared = await engine.prepare(ROUND, bit_table(TASK), CHECK_KEY)
    keys = [KeysMessage(one.session_id, one.keys) for one in sessions]
    before = await prepared.answer(keys)
    ray.away = "nothing listens there"
    ray.links[0].close()
    with pytest.raises(ComputeUnavailableError):
        await prepared.answer(keys)
    await until(lambda: "set [compute] engine" in (engine.fault() or "") and "reached" in (engine.fault() or ""))
    assert "nothing listens" not in (engine.fault() or "")  # a hint has no address
    ray.away = ""
    await until(lambda: engine.fault() is None)
    assert await prepared.answer(keys) == before


async def test_a_round_that_is_no_longer_used_is_forgotten_by_the_workers(engine: RayCompute, ray: LocalRay) -> None:
    prepared = await engine.prepare(ROUND, bit_table(TASK), CHECK_KEY)
    total = prepared.sum()
    await total.add(sessions_of(ROUND))
    del total
    await until(lambda: "end_sum" in ray.links[0].calls)
    del prepared
    await until(lambda: "forget" in ray.links[0].calls)


async def test_requests_that_arrive_together_share_a_call(engine: RayCompute, ray: LocalRay) -> None:
    sessions = sessions_of(ROUND, count=24)
    prepared = await engine.prepare(ROUND, bit_table(TASK), CHECK_KEY)
    alone = [await prepared.accept([KeysMessage(one.session_id, one.keys)]) for one in sessions]
    before = len(ray.links[0].calls)
    together = await asyncio.gather(*(prepared.accept([KeysMessage(one.session_id, one.keys)]) for one in sessions))
    assert together == alone
    assert len(ray.links[0].calls) - before < 12


@pytest.mark.parametrize("kind", [SURVEY, EVALUATE])
async def test_rounds_that_only_add_numbers_are_computed_here(kind: str, engine: RayCompute, ray: LocalRay) -> None:
    round_ = make_round(make_task(), kind=kind)
    prepared = await engine.prepare(round_, bit_table(round_.task), CHECK_KEY)
    assert len(bytes(await prepared.sum().share())) == 8 * round_.sum_size
    assert not {"add", "start_sum", "piece"} & set(ray.links[0].calls)


async def test_workers_have_as_many_ranges_as_there_are_slots() -> None:
    round_ = make_round(SHAPES["one item, direct"])
    with local_engine(LocalRay(), options=Options(address="here", workers=5, memory_bytes=None)) as engine:
        sessions = sessions_of(round_)
        assert await outcome(engine, round_, sessions) == await by_threads(round_, sessions)


def lose_once(link: LocalLink, method: str, *, place: int) -> None:
    """Lose a worker in its next call of a method."""

    def meddle(called: str, where: int) -> None:
        if (called, where) == (method, place):
            link.workers[place] = None
            link.meddle = lambda _method, _place: None

    link.meddle = meddle


async def until(condition: Callable[[], bool]) -> None:
    """Wait for what other threads do."""
    while not condition():  # noqa: ASYNC110
        await asyncio.sleep(0.005)
