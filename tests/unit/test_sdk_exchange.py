"""When a device asks again, how long it waits, and when it gives up."""

from typing import Any, cast

import pytest

from secemb_sdk import Policy
from secemb_sdk.context import Context
from secemb_sdk.errors import UnavailableError
from secemb_sdk.exchange import Exchange, server_time
from secemb_sdk.steps import Answer, Lost, Pause, Request, Send


def an_exchange(draws: bytes, **policy: Any) -> tuple[Exchange, list[float]]:
    now = [0.0]
    context = Context(
        vault=cast(Any, None),
        task_id=bytes(32),
        policy=Policy(pace_seconds=0.0, **policy),
        clock=lambda: now[0],
        random_bytes=lambda count: draws[:count],
    )
    return Exchange(context), now


def run(exchange: Exchange, now: list[float], replies: list[Answer | Lost]) -> tuple[list[float], list[Answer]]:
    """Return the pauses that were made and the answers."""
    steps, pauses = exchange.ask(Request(server=1, method="PUT", path="/", body=b"frozen")), []
    effect = next(steps)
    try:
        while True:
            if isinstance(effect, Pause):
                pauses.append(effect.seconds)
                now[0] += effect.seconds
                effect = steps.send(None)
            else:
                assert isinstance(effect, Send)
                assert effect.requests[0].body == b"frozen"
                effect = steps.send([replies.pop(0)])
    except StopIteration as stop:
        return pauses, stop.value


@pytest.mark.parametrize(("draw", "share"), [(b"\x00" * 4, 0.0), (b"\x00\x00\x00\x80", 0.5), (b"\xff" * 4, 1.0)])
def test_pauses_double_up_to_half_a_minute_and_are_drawn_from_all_of_it(draw: bytes, share: float) -> None:
    exchange, now = an_exchange(draw, seconds=1000.0)
    pauses, answers = run(exchange, now, [*[Lost("lost")] * 9, Answer(status=200)])
    ceilings = [0.5, 1, 2, 4, 8, 16, 30, 30, 30]
    assert pauses == [pytest.approx(share * ceiling, rel=1e-6) for ceiling in ceilings]
    assert [answer.status for answer in answers] == [200]


def test_a_pause_that_would_pass_the_deadline_is_not_begun() -> None:
    exchange, now = an_exchange(b"\xff" * 4, seconds=10.0)
    with pytest.raises(UnavailableError, match="server 1 does not answer") as raised:
        run(exchange, now, [Lost("lost")] * 20)
    assert now[0] < 10.0
    assert raised.value.seconds == 0.5


def test_what_a_server_asks_for_is_passed_on_when_there_is_no_time_for_it() -> None:
    exchange, now = an_exchange(bytes(4), seconds=10.0)
    with pytest.raises(UnavailableError) as raised:
        run(exchange, now, [Answer(status=503, headers={"retry-after": "300"})])
    assert raised.value.seconds == 300.0


def test_a_wait_that_would_pass_the_deadline_is_not_begun() -> None:
    exchange, now = an_exchange(bytes(4), seconds=10.0)
    assert next(exchange.wait_until(9.0)) == Pause(9.0)
    now[0] = 4.0
    with pytest.raises(UnavailableError, match="time for this call") as raised:
        next(exchange.wait_until(10.0))
    assert raised.value.seconds == 6.0
    assert list(exchange.wait_until(4.0)) == []


def test_a_request_never_lasts_longer_than_the_call() -> None:
    exchange, _ = an_exchange(bytes(4), seconds=10.0)
    exchange.end_within(4.0)
    exchange.end_within(7.0)
    effect = next(exchange.ask(Request(server=0, method="GET", path="/")))
    assert isinstance(effect, Send)
    assert effect.requests[0].seconds == 4.0


@pytest.mark.parametrize(
    ("date", "seconds"), [("Thu, 01 Jan 1970 00:01:40 GMT", 100.0), ("yesterday", None), ("", None), (None, None)]
)
def test_a_server_shows_its_time_or_not(date: str | None, seconds: float | None) -> None:
    assert server_time(Answer(status=200, headers={} if date is None else {"date": date})) == seconds
