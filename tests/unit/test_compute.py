"""The engine of worker threads: the same bytes as the bare arithmetic, and each share once."""

import asyncio
import hashlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest
from tests.unit.local_workers import LocalRay, local_engine
from tests.unit.sessions import bit_table, make_devices, make_round, make_task, seeded

from secemb_party.compute import Compute
from secemb_party.compute.threads import ThreadCompute, Workers
from secemb_party.evaluation import Evaluation, KeysMessage, SessionBodies, Share
from secemb_sdk.round.session import DeviceSession
from secemb_shared.errors import SecEmbError, SessionError
from secemb_shared.messages import codec

pytestmark = pytest.mark.asyncio

ROUND = make_round(make_task())
TABLE = bit_table(ROUND.task)
CHECK_KEY = b"a secret of both"


@pytest.fixture
def workers() -> Iterator[Workers]:
    workers = Workers(threads=2)
    yield workers
    workers.close()


@pytest.fixture(params=["threads", "workers"])
def engine(request: pytest.FixtureRequest, workers: Workers) -> Iterator[Compute]:
    """Return each engine in turn; tests/integration/test_ray.py runs the second one on a real cluster."""
    if request.param == "threads":
        yield ThreadCompute(1, workers)
        return
    with local_engine(LocalRay()) as engine:
        yield engine


def uploads(count: int = 5, party: int = 1) -> list[SessionBodies]:
    """Return what a party receives in a small round."""
    random_bytes = seeded("compute")
    made = []
    for device in make_devices(ROUND.task, count, most=3):
        session = DeviceSession(ROUND, device.items, random_bytes=random_bytes)
        messages = session.write(device.items, device.updates, device.dense)
        made.append(SessionBodies(session.session_id, session.keys[party], messages[party]))
    return made


def keys_of(sessions: list[SessionBodies]) -> list[KeysMessage]:
    return [KeysMessage(one.session_id, one.keys) for one in sessions]


async def test_every_engine_answers_and_adds_as_the_arithmetic_does(engine: Compute) -> None:
    bare, sessions = Evaluation.prepare(ROUND, 1, TABLE, check_key=CHECK_KEY), uploads()
    prepared = await engine.prepare(ROUND, TABLE, CHECK_KEY)
    assert engine.fault() is None
    accepted = await prepared.accept(keys_of(sessions))
    assert prepared.spec == ROUND
    assert [one.answer for one in accepted] == bare.answer(keys_of(sessions))
    assert await prepared.answer(keys_of(sessions)) == bare.answer(keys_of(sessions))
    assert [one.body_digest for one in accepted] == [hashlib.sha256(one.keys).digest() for one in sessions]
    assert [one.public_digest for one in accepted] == [alike for _, alike in bare.accept(keys_of(sessions))]
    expected, total = Share.empty(ROUND), prepared.sum()
    told = bare.add(sessions, expected)
    assert await total.add(sessions[:2]) + await total.add(sessions[2:]) == told
    assert await total.share() == expected.encode()


async def test_what_is_removed_leaves_no_trace(engine: Compute) -> None:
    sessions = uploads()
    total = (await engine.prepare(ROUND, TABLE, CHECK_KEY)).sum()
    await total.add(sessions)
    await total.remove(sessions[1:4])
    expected = Share.empty(ROUND)
    Evaluation.prepare(ROUND, 1, TABLE, check_key=CHECK_KEY).add([sessions[0], *sessions[4:]], expected)
    assert await total.share() == expected.encode()


async def test_sums_of_one_round_do_not_mix(engine: Compute) -> None:
    prepared, sessions = await engine.prepare(ROUND, TABLE, CHECK_KEY), uploads()
    first, second = prepared.sum(), prepared.sum()
    await first.add(sessions)
    assert await second.share() == Share.empty(ROUND).encode()


async def test_a_share_is_returned_once(engine: Compute) -> None:
    total = (await engine.prepare(ROUND, TABLE, CHECK_KEY)).sum()
    await total.share()
    with pytest.raises(SessionError):
        await total.share()
    with pytest.raises(SessionError):
        await total.add(uploads(1))


async def test_a_keys_message_is_decoded_once(workers: Workers, monkeypatch: pytest.MonkeyPatch) -> None:
    decoded: list[bytes] = []
    honest: Callable[..., object] = codec.decode_keys

    def count(*args: object) -> object:
        decoded.append(bytes(args[1]))  # type: ignore[call-overload]
        return honest(*args)

    monkeypatch.setattr("secemb_party.evaluation.decode_keys", count)
    sessions = uploads()
    await (await ThreadCompute(1, workers).prepare(ROUND, TABLE, CHECK_KEY)).accept(keys_of(sessions))
    assert decoded == [one.session_id for one in sessions]


async def test_a_message_of_another_session_refuses_its_batch_and_no_other(engine: Compute) -> None:
    prepared, (first, second) = await engine.prepare(ROUND, TABLE, CHECK_KEY), uploads(2)
    bad = [*keys_of([first]), KeysMessage(first.session_id, second.keys)]
    found = await asyncio.gather(prepared.answer(bad), prepared.answer(keys_of([second])), return_exceptions=True)
    assert isinstance(found[0], SecEmbError)
    assert found[1] == await prepared.answer(keys_of([second]))


async def test_kernel_time_is_measured_by_operation(workers: Workers) -> None:
    seen: list[str] = []

    @contextmanager
    def measure(operation: str) -> Iterator[None]:
        seen.append(operation)
        yield

    prepared, sessions = await ThreadCompute(1, workers, measure=measure).prepare(ROUND, TABLE, CHECK_KEY), uploads(1)
    await prepared.answer(keys_of(sessions))
    total = prepared.sum()
    await total.add(sessions)
    await total.share()
    assert seen == ["prepare", "answer", "accumulate", "noise"]


async def test_messages_do_not_show_their_bytes() -> None:
    session = uploads(1)[0]
    for shown in (repr(session), repr(keys_of([session])[0])):
        assert session.keys.hex() not in shown
        assert "\\x" not in shown
