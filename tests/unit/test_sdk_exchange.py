"""When a device asks again, how long it waits, and when it gives up."""

from pathlib import Path
from typing import Any

import pytest

from secemb_sdk import Policy
from secemb_sdk.context import Context
from secemb_sdk.errors import UnavailableError
from secemb_sdk.exchange import AWAY_PAUSE, Exchange, json_object, server_time
from secemb_sdk.home.encryption import FileCipher
from secemb_sdk.home.files import Home
from secemb_sdk.home.vault import Vault
from secemb_sdk.steps import Answer, Lost, Pause, Request, Send, Work


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "home"


def an_exchange(folder: Path, draws: bytes, *, begun: bool = True, **policy: Any) -> tuple[Exchange, list[float]]:
    """Return one call of the device in this folder, with a session under way or not, and its clock."""
    now = [0.0]
    context = Context(
        vault=Vault(Home(folder, FileCipher())),
        task_id=bytes(32),
        policy=Policy(pace_seconds=0.0, **policy),
        clock=lambda: now[0],
        random_bytes=lambda count: draws[:count],
    )
    exchange = Exchange(context)
    exchange.begun = begun
    return exchange, now


def run(exchange: Exchange, now: list[float], replies: list[Answer | Lost]) -> tuple[list[float], list[Answer]]:
    """Return the pauses that were made and the answers."""
    steps, pauses = exchange.noting(exchange.ask(Request(server=1, method="PUT", path="/", body=b"frozen"))), []
    effect = next(steps)
    try:
        while True:
            if isinstance(effect, Pause):
                pauses.append(effect.seconds)
                now[0] += effect.seconds
                effect = steps.send(None)
            elif isinstance(effect, Work):
                effect = steps.send(effect.function())
            else:
                assert isinstance(effect, Send)
                assert effect.requests[0].body == b"frozen"
                effect = steps.send([replies.pop(0)])
    except StopIteration as stop:
        return pauses, stop.value
    finally:
        exchange.context.vault.close()  # the next call opens the home again, as after a restart


LOST = Lost("lost")
BUSY = Answer(status=503, headers={"retry-after": "0"})


@pytest.mark.parametrize(("draw", "share"), [(b"\x00" * 4, 0.5), (b"\x00\x00\x00\x80", 0.75), (b"\xff" * 4, 1.0)])
@pytest.mark.parametrize(
    ("reply", "longest"), [(Lost("lost"), AWAY_PAUSE), (Answer(status=502), AWAY_PAUSE), (BUSY, 30)]
)
def test_pauses_double_and_are_drawn_from_their_later_half(
    folder: Path, draw: bytes, share: float, reply: Answer | Lost, longest: float
) -> None:
    """A server that is there but busy is asked twice a minute, one that is away every quarter of an hour."""
    exchange, now = an_exchange(folder, draw, seconds=10_000.0)
    pauses, answers = run(exchange, now, [*[reply] * 14, Answer(status=200)])
    ceilings = [min(0.5 * 2**tries, longest) for tries in range(14)]
    assert pauses == [pytest.approx(share * ceiling, rel=1e-6) for ceiling in ceilings]
    assert [answer.status for answer in answers] == [200]


def give_up(folder: Path, *replies: Answer | Lost) -> tuple[int, float]:
    """Return how many requests a call sent before it gave up, and when it is to be repeated."""
    exchange, now = an_exchange(folder, b"\xff" * 4, seconds=10.0)
    left = list(replies)
    with pytest.raises(UnavailableError, match="server 1") as raised:
        run(exchange, now, left)
    assert now[0] < 10.0
    assert raised.value.seconds is not None
    return len(replies) - len(left), raised.value.seconds


def test_a_pause_that_would_pass_the_deadline_is_left_to_the_caller(folder: Path) -> None:
    sent, seconds = give_up(folder, *[LOST] * 20)
    assert sent == 5
    assert seconds == pytest.approx(8.0, rel=1e-6)  # after 0.5 + 1 + 2 + 4 seconds


def test_an_owner_with_nothing_under_way_is_told_in_seconds_that_a_server_is_away(folder: Path) -> None:
    exchange, now = an_exchange(folder, b"\xff" * 4, begun=False, seconds=120.0)
    with pytest.raises(UnavailableError, match="server 1 did not respond") as raised:
        run(exchange, now, [LOST] * 20)
    assert now[0] == pytest.approx(3.5, rel=1e-6)  # 0.5 + 1 + 2 seconds; the next pause would pass five
    assert raised.value.seconds == pytest.approx(4.0, rel=1e-6)


def test_a_server_that_answers_that_it_is_busy_is_waited_for_before_a_session_too(folder: Path) -> None:
    exchange, now = an_exchange(folder, b"\xff" * 4, begun=False, seconds=120.0)
    pauses, answers = run(exchange, now, [LOST, LOST, *[BUSY] * 6, Answer(status=200)])
    assert (len(pauses), [one.status for one in answers]) == (8, [200])


def test_what_is_begun_in_one_call_goes_on_in_the_next_ones_also_after_a_restart(folder: Path) -> None:
    """Twenty devices in the loop of docs/sdk.md made 2,162 requests in two and a half minutes without server 1."""
    give_up(folder, *[LOST] * 20)
    calls = [give_up(folder, *[LOST] * 20) for _ in range(9)]
    assert [sent for sent, _ in calls] == [1] * 9  # one request a call
    assert [seconds for _, seconds in calls] == [
        pytest.approx(min(AWAY_PAUSE, 16.0 * 2**place), rel=1e-6) for place in range(9)
    ]


def test_an_answer_ends_the_growth(folder: Path) -> None:
    for _ in range(5):
        give_up(folder, *[LOST] * 20)
    exchange, now = an_exchange(folder, b"\xff" * 4, seconds=10.0)
    assert run(exchange, now, [Answer(status=202)])[0] == []
    assert give_up(folder, *[LOST] * 20)[0] == 5


def test_an_answer_of_one_server_says_nothing_about_the_other(folder: Path) -> None:
    give_up(folder, *[LOST] * 20)
    exchange, _ = an_exchange(folder, b"\xff" * 4, seconds=10.0)
    steps = exchange.ask(Request(server=0, method="GET", path="/"))
    next(steps)
    with pytest.raises(StopIteration):
        steps.send([Answer(status=200)])
    exchange.context.vault.close()
    assert give_up(folder, *[LOST] * 20)[0] == 1


def test_what_a_server_asks_for_is_passed_on_when_there_is_no_time_for_it(folder: Path) -> None:
    sent, seconds = give_up(folder, Answer(status=503, headers={"retry-after": "300"}))
    assert sent == 1
    assert seconds == pytest.approx(300.5, rel=1e-6)


def test_a_wait_that_would_pass_the_deadline_is_not_begun(folder: Path) -> None:
    exchange, now = an_exchange(folder, bytes(4), seconds=10.0)
    assert next(exchange.wait_until(9.0)) == Pause(9.0)
    now[0] = 4.0
    with pytest.raises(UnavailableError, match="call timed out") as raised:
        next(exchange.wait_until(10.0))
    assert raised.value.seconds == 6.0
    assert list(exchange.wait_until(4.0)) == []


def test_a_request_never_lasts_longer_than_the_call(folder: Path) -> None:
    exchange, _ = an_exchange(folder, bytes(4), seconds=10.0)
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


@pytest.mark.parametrize(
    "body", [b'{"round":"a","round":"b"}', b'{"rounds":{"until":1,"until":1}}', b"[1]", b"{", b"\xff", b'"text"']
)
def test_an_answer_that_is_no_object_or_names_a_member_twice_says_nothing(body: bytes) -> None:
    assert json_object(body) == {}


def test_an_object_is_read_with_members_that_this_device_does_not_know() -> None:
    assert json_object(b'{"round":null,"new":{"a":1,"b":1}}') == {"round": None, "new": {"a": 1, "b": 1}}
