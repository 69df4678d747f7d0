"""Nothing unexpected ends server 0: the conductor tells it, counts it, and looks again until the round goes on."""

import asyncio
import errno
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import httpx
import pytest
from tests.devices.scripted import a_device
from tests.simulation.pair import Pair, a_pair

from secemb_party.errors import LedgerTakenError
from secemb_party.ledger import Ledger
from secemb_server0 import app
from secemb_server0.app import conduct
from secemb_server0.conductor import Decision
from secemb_server0.leader import Leader

pytestmark = pytest.mark.asyncio


@pytest.fixture(autouse=True)
def short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(app, "_LONGEST_PAUSE", 0.001)
    monkeypatch.setattr(app, "_REFUSED_PAUSE", 0.001)


async def ready_to_seal(pair: Pair) -> None:
    await pair.step()
    for number in range(3):
        await a_device(pair, number).take_part()
    pair.clock.now += pair.task.join_seconds


Until = Callable[[Callable[[], bool]], Awaitable[None]]


@asynccontextmanager
async def conducting(pair: Pair) -> AsyncIterator[Until]:
    """Let the conductor run, which must not end by itself; yield a way to wait until something holds."""
    task = asyncio.create_task(conduct(pair.server0.leader))

    async def until(holds: Callable[[], bool]) -> None:
        async with asyncio.timeout(60):
            while not holds():
                assert not task.done(), task.exception()
                await asyncio.sleep(0.005)

    try:
        yield until
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


def published(pair: Pair) -> bool:
    return all(party.models.versions() == [0, 1] for party in pair.parties.values())


def failures(pair: Pair) -> float:
    return {name: value for name, _, value in pair.parties[0].metrics.figures()}["secemb_conductor_failures_total"]


@pytest.mark.parametrize("number", [errno.EMFILE, errno.ENOSPC, errno.EIO])
async def test_a_share_that_cannot_be_stored_is_tried_again_until_it_can(
    number: int, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async with a_pair() as pair:
        await ready_to_seal(pair)
        shares = pair.parties[0]._shares
        async with conducting(pair) as until:
            with monkeypatch.context() as patch:
                patch.setattr(shares, "save", failing(OSError(number, "hunter2")))
                await until(lambda: failures(pair) >= 3)
                assert not published(pair)
            await until(lambda: published(pair))
    begun = [record for record in caplog.records if "the conductor failed" in record.getMessage()]
    assert len(begun) == 1
    assert "OSError" in begun[0].getMessage()
    assert "the conductor has recovered" in caplog.text
    assert "hunter2" not in caplog.text


def failing(error: Exception) -> Callable[..., Any]:
    def fail(*_: object, **__: object) -> Any:
        raise error

    return fail


@pytest.mark.parametrize(
    "answer",
    [
        httpx.Response(400, content=b"[]"),
        httpx.Response(400, content=b'"text"'),
        httpx.Response(400, content=b'{"type": 7, "detail": []}'),
        httpx.Response(400, content=b"\xff"),
        httpx.Response(200, content=b"[]"),
        httpx.Response(200, content=b"null"),
        httpx.Response(500, content=b"{}"),
        httpx.Response(302, content=b"{}"),
    ],
    ids=lambda answer: f"{answer.status_code} {answer.content!r}",
)
async def test_whatever_server_1_answers_the_conductor_goes_on(answer: httpx.Response) -> None:
    async with a_pair() as pair:
        await ready_to_seal(pair)
        asked: list[str] = []

        def reply(request: httpx.Request) -> httpx.Response:
            asked.append(request.url.path)
            return httpx.Response(answer.status_code, content=answer.content)

        async with conducting(pair) as until:
            pair.line.reply = reply
            await until(lambda: len(asked) >= 3)
            pair.line.reply = None
            await until(lambda: published(pair))


async def test_a_server_that_lost_its_ledger_to_another_stops_conducting_and_writing(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    tried = 0

    async def claim(self: Ledger) -> None:
        nonlocal tried
        tried += 1
        raise LedgerTakenError("another server process is using this ledger")

    steps: list[Decision] = []
    honest = Leader._step

    async def step(self: Leader, last: Any) -> Any:
        found = await honest(self, last)
        steps.append(found[0])
        return found

    async with a_pair() as pair:
        monkeypatch.setattr(Leader, "_step", step)
        async with conducting(pair) as until:
            with monkeypatch.context() as patch:
                patch.setattr(Ledger, "claim", claim)
                await until(lambda: tried >= 3)
                assert steps == []
            await until(lambda: bool(steps))
    assert caplog.text.count("another server process") == 1
    assert "no longer waiting" in caplog.text


async def test_a_regular_call_that_server_1_does_not_answer_makes_devices_wait_longer() -> None:
    """A step of a round waits a minute for a server 1 that hangs; devices would come back every few seconds."""
    async with a_pair() as pair:
        await pair.step()  # before its first round, server 0 calls server 1 in a step too
        forecast = pair.server0.leader.forecast

        def wait() -> float:
            return forecast.opening(None, pair.clock.now) - pair.clock.now

        pair.line.lose_requests = 2
        await pair.exchange()
        pair.clock.now += 300
        await pair.exchange()
        assert wait() == 300
        await pair.step()  # an independent observation: it found server 1, but the last call did not
        assert wait() == 300
        await pair.exchange()
        assert wait() == 1
