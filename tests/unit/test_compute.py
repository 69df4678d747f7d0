"""The engine of worker threads: the same bytes as the bare arithmetic, and each share once."""

import hashlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest
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


async def test_the_engine_answers_and_adds_as_the_arithmetic_does(workers: Workers) -> None:
    engine: Compute = ThreadCompute(1, workers)
    bare, sessions = Evaluation.prepare(ROUND, 1, TABLE, check_key=CHECK_KEY), uploads()
    prepared = await engine.prepare(ROUND, TABLE, CHECK_KEY)
    accepted = await prepared.accept(keys_of(sessions))
    assert prepared.spec == ROUND
    assert [one.answer for one in accepted] == bare.answer(keys_of(sessions))
    assert await prepared.answer(keys_of(sessions)) == bare.answer(keys_of(sessions))
    assert [one.body_digest for one in accepted] == [hashlib.sha256(one.keys).digest() for one in sessions]
    assert [one.public_digest for one in accepted] == [alike for _, alike in bare.accept(keys_of(sessions))]
    expected, total = Share.empty(ROUND), prepared.sum()
    bare.add(sessions, expected)
    await total.add(sessions[:2])
    await total.add(sessions[2:])
    assert await total.share() == expected.encode()


async def test_sums_of_one_round_do_not_mix(workers: Workers) -> None:
    prepared, sessions = await ThreadCompute(1, workers).prepare(ROUND, TABLE, CHECK_KEY), uploads()
    first, second = prepared.sum(), prepared.sum()
    await first.add(sessions)
    assert await second.share() == Share.empty(ROUND).encode()


async def test_a_share_is_returned_once(workers: Workers) -> None:
    total = (await ThreadCompute(1, workers).prepare(ROUND, TABLE, CHECK_KEY)).sum()
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


async def test_a_message_of_another_session_refuses_its_batch(workers: Workers) -> None:
    prepared, (first, second) = await ThreadCompute(1, workers).prepare(ROUND, TABLE, CHECK_KEY), uploads(2)
    with pytest.raises(SecEmbError):
        await prepared.answer([*keys_of([first]), KeysMessage(first.session_id, second.keys)])


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
