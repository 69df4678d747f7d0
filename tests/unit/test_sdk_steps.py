"""Two drivers, one meaning: what the steps get back, what is raised in them, and what a cancelled caller leaves."""

import asyncio
import threading
from collections.abc import Callable
from typing import Any

import pytest

from secemb_sdk.errors import PinError
from secemb_sdk.steps import (
    Answer,
    Lost,
    Pause,
    Request,
    Send,
    Steps,
    Work,
    drive_async,
    drive_blocking,
    pause,
    send,
    work,
)
from secemb_tools.output import busy

ONE, TWO = (Request(server=server, method="GET", path="/") for server in (0, 1))


class Carrier:
    """Answers with the server's number, or raises."""

    def __init__(self, error: Exception | None = None) -> None:
        self.error, self.finished = error, 0

    async def send(self, request: Request) -> Answer | Lost:
        if request.server == 0 and self.error is not None:
            raise self.error
        await asyncio.sleep(0.01)
        self.finished += 1
        return Answer(status=200 + request.server)

    def send_all(self, requests: tuple[Request, ...]) -> list[Answer | Lost]:
        return [asyncio.run(self.send(request)) for request in requests]


def run_async(steps: Steps[Any], carrier: Carrier, slept: list[float]) -> Any:
    async def sleep(seconds: float) -> None:
        slept.append(seconds)

    return asyncio.run(drive_async(steps, carrier, sleep=sleep))


def run_blocking(steps: Steps[Any], carrier: Carrier, slept: list[float]) -> Any:
    return drive_blocking(steps, carrier, sleep=slept.append)


Run = Callable[[Steps[Any], Carrier, list[float]], Any]
BOTH = pytest.mark.parametrize("run", [run_async, run_blocking], ids=["async", "blocking"])


@BOTH
def test_every_effect_is_carried_out_in_order(run: Run) -> None:
    def steps() -> Steps[list[Any]]:
        answers = yield from send(ONE, TWO)
        yield from pause(2.5)
        done = yield from work(threading.get_ident)
        return [[one.status for one in answers if isinstance(one, Answer)], done]

    slept: list[float] = []
    statuses, thread = run(steps(), Carrier(), slept)
    assert statuses == [200, 201]
    assert slept == [2.5]
    assert (thread == threading.get_ident()) == (run is run_blocking)


@BOTH
def test_steps_without_effects_just_return(run: Run) -> None:
    def steps() -> Steps[int]:
        yield from ()
        return 7

    assert run(steps(), Carrier(), []) == 7


@BOTH
def test_what_fails_is_raised_inside_the_steps(run: Run) -> None:
    def steps() -> Steps[str]:
        try:
            yield from work(lambda: 1 // 0)
        except ZeroDivisionError:
            return "recovered"
        return "nothing happened"

    assert run(steps(), Carrier(), []) == "recovered"


@BOTH
def test_what_the_steps_do_not_expect_reaches_the_caller(run: Run) -> None:
    closed = []

    def steps() -> Steps[None]:
        try:
            yield Work(lambda: 1 // 0)
        finally:
            closed.append(True)

    with pytest.raises(ZeroDivisionError):
        run(steps(), Carrier(), [])
    assert closed == [True]


def test_a_request_that_raises_leaves_no_other_behind() -> None:
    carrier = Carrier(PinError("another key"))

    def steps() -> Steps[None]:
        yield Send((ONE, TWO))

    with pytest.raises(PinError):
        run_async(steps(), carrier, [])
    assert carrier.finished == 1


def test_a_cancelled_caller_waits_for_the_work_under_way() -> None:
    """A write that goes on after the caller has gone would meet whatever the next caller does."""
    begun, go_on, ended, closed = threading.Event(), threading.Event(), threading.Event(), []

    def write() -> None:
        begun.set()
        assert go_on.wait(10)
        ended.set()

    def steps() -> Steps[None]:
        try:
            yield from work(write)
            raise AssertionError("the steps went on")
        finally:
            closed.append(ended.is_set())

    async def cancel() -> None:
        task = asyncio.create_task(drive_async(steps(), Carrier()))
        await asyncio.to_thread(begun.wait)
        task.cancel()
        await asyncio.sleep(0.01)
        task.cancel()
        await asyncio.sleep(0.01)
        assert not task.done()
        go_on.set()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(cancel())
    assert closed == [True]


@pytest.mark.parametrize("effect", [Send((ONE,)), Pause(100.0)], ids=["send", "pause"])
def test_a_cancelled_caller_closes_the_steps(effect: Send | Pause) -> None:
    closed = []

    class Silent(Carrier):
        async def send(self, request: Request) -> Answer | Lost:
            await asyncio.sleep(100)
            raise AssertionError

    def steps() -> Steps[None]:
        try:
            yield effect
        finally:
            closed.append(True)

    async def cancel() -> None:
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(drive_async(steps(), Silent()), 0.05)

    asyncio.run(cancel())
    assert closed == [True]


def test_an_interrupt_closes_the_steps_of_a_blocking_caller() -> None:
    closed = []

    def steps() -> Steps[None]:
        try:
            yield Pause(1)
        finally:
            closed.append(True)

    def interrupted(_seconds: float) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        drive_blocking(steps(), Carrier(), sleep=interrupted)
    assert closed == [True]


def test_an_effect_shows_nothing_of_a_request() -> None:
    request = Request(server=0, method="PUT", path="/sessions/secret", headers={"a": "secret"}, body=b"secret")
    answer = Answer(status=200, headers={"a": "secret"}, body=b"secret")
    assert "secret" not in repr(Send((request,))) + repr(answer) + repr(Work(lambda: "secret"))


def test_a_long_wait_is_told_with_its_reason_and_a_short_one_is_not(capsys: pytest.CaptureFixture[str]) -> None:
    waited: list[float] = []

    def steps() -> Steps[None]:
        yield Pause(0.5, "server 1 does not answer")
        yield Pause(3.2, "server 1 does not answer")
        yield Pause(30.0)  # part of the protocol: nothing is wrong

    with busy("taking part"):
        drive_blocking(steps(), Carrier(), sleep=waited.append)
    drive_blocking(steps(), Carrier(), sleep=waited.append)  # nobody looks on
    assert waited == [0.5, 3.2, 30.0] * 2
    assert capsys.readouterr().err.split("\n")[-2:] == ["server 1 does not answer; trying again in 4 seconds", ""]
