"""The small parts of a device: what it brings to a round, what it measures, when it asks again, how it is opened."""

import asyncio
import math
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
from tests.unit.loopback import answer, serving, write_identity
from tests.unit.sessions import make_round, make_task

from secemb_sdk import Device, Policy
from secemb_sdk.context import Context
from secemb_sdk.errors import AddressError, EnrolmentError, HomeKeyError, PinError, PolicyError, UnavailableError
from secemb_sdk.exchange import Exchange, server_time
from secemb_sdk.home.detections import Detection
from secemb_sdk.models import Floats, Model
from secemb_sdk.round.selection import HoldOut, Selection, select
from secemb_sdk.round.session import SeededBytes, session_id_of
from secemb_sdk.round.upload import measure
from secemb_sdk.steps import Answer, Lost, Pause, Request, Send
from secemb_shared.messages.spec import EVALUATE, SURVEY, TRAIN
from secemb_shared.randomness import Indices, secure_bytes

TASK = "ab" * 32
SERVERS = ("https://zero.example", "https://one.example")


# Seeds.


def test_a_seed_gives_the_same_bytes_however_they_are_asked_for() -> None:
    seed = bytes(range(32))
    whole, pieces = SeededBytes(seed), SeededBytes(seed)
    assert whole(100) == b"".join(pieces(count) for count in (16, 1, 0, 50, 33))
    assert session_id_of(seed) == SeededBytes(seed)(16)
    assert SeededBytes(bytes(32))(64) != SeededBytes(seed)(64)
    assert repr(whole) == "<SeededBytes>"


@pytest.mark.parametrize("length", [0, 16, 31, 33])
def test_a_seed_of_another_length_is_refused(length: int) -> None:
    with pytest.raises(ValueError, match="32 bytes"):
        SeededBytes(bytes(length))


# Selections.


@pytest.mark.parametrize("fraction", [0.0, 0.1, 0.5, 0.9])
def test_about_the_right_fraction_is_held_out_and_stays_held_out(fraction: float) -> None:
    hold_out = HoldOut(key=bytes(32), fraction=fraction)
    held = {item for item in range(4000) if item in hold_out}
    assert abs(len(held) / 4000 - fraction) < 0.04
    more = HoldOut(key=bytes(32), fraction=min(1.0, fraction + 0.05))
    assert held <= {item for item in range(4000) if item in more}
    other = HoldOut(key=bytes(31) + b"1", fraction=fraction)
    assert fraction == 0.0 or held != {item for item in range(4000) if item in other}


def test_each_kind_of_round_gets_its_own_items() -> None:
    round_ = make_round(make_task(items=37, capacity=8))
    ratings = {item: float(item) for item in range(0, 50, 2)}
    hold_out = HoldOut(key=bytes(32), fraction=0.4)
    known = {item for item in ratings if item < 37}
    held = {item for item in known if item in hold_out}
    found = {
        kind: select(replace(round_, kind=kind), ratings, hold_out, secure_bytes) for kind in (TRAIN, SURVEY, EVALUATE)
    }
    assert {one.unknown for one in found.values()} == {len(ratings) - len(known)}
    assert set(found[TRAIN].items.tolist()) == known - held
    assert set(found[SURVEY].items.tolist()) == known
    evaluated = found[EVALUATE]
    rated = ~np.isnan(evaluated.values)
    assert set(evaluated.items[rated].tolist()) <= held
    assert rated[0]
    assert not set(evaluated.items[~rated].tolist()) & known
    assert evaluated.items.size <= 8


def test_ratings_come_in_the_order_of_the_items_that_are_asked_for() -> None:
    selection = Selection(items=np.array([9, 2, 5]), values=np.array([1, 2, 3], np.float32), unknown=0)
    ratings = selection.ratings_of(np.array([5, 9]))
    assert ratings.values.tolist() == [3.0, 1.0]


# Evaluations.


class Scores:
    """A model that scores each item with its row's first number."""

    def scores(self, rows: Floats, dense: Floats, private: Floats, items: Indices) -> Floats:
        return rows[:, 0]


def measured(scores: list[float], values: list[float], *, placed: slice = slice(None)) -> list[float]:
    items = np.arange(len(scores), dtype=np.int64) * 3
    selection = Selection(items=items, values=np.array(values, np.float32), unknown=0)
    rows = np.array(scores, np.float32)[placed, None]
    none = np.zeros(0, np.float32)
    model = cast(Model, Scores())
    return [float(value) for value in measure(model, none, selection, items[placed], rows, none)]


def test_errors_are_those_of_rated_items() -> None:
    assert measured([3.0, 1.0, 9.0], [5.0, 2.0, math.nan])[:3] == [2.0, 5.0, 3.0]


@pytest.mark.parametrize(("place", "hit"), [(0, True), (1, True), (9, True), (10, False), (15, False)])
def test_a_hit_is_a_place_among_the_first_ten(place: int, hit: bool) -> None:
    strangers = [2.0] * place + [0.0] * (20 - place)
    gain = 1 / math.log2(place + 2) if hit else 0.0
    assert measured([1.0, *strangers], [4.0, *[math.nan] * 20])[3:] == [1.0, float(hit), pytest.approx(gain)]


def test_a_tie_is_no_advantage() -> None:
    assert measured([1.0] * 12, [4.0, *[math.nan] * 11])[3:] == [1.0, 0.0, 0.0]


def test_without_strangers_or_without_its_item_there_is_no_ranking() -> None:
    assert measured([1.0], [4.0])[3:] == [0.0, 0.0, 0.0]
    assert measured([1.0, 2.0], [4.0, math.nan], placed=slice(1, None))[3:] == [0.0, 0.0, 0.0]
    assert measured([], []) == [0.0] * 6


# Asking again.


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


# Policies and openings.


@pytest.mark.parametrize(
    "fields",
    [
        {"seconds": 0.0},
        {"seconds": -1.0},
        {"seconds": float("inf")},
        {"seconds": float("nan")},
        {"pace_seconds": -1.0},
        {"pace_seconds": 120.0},
        {"pace_seconds": float("nan")},
    ],
)
def test_a_policy_that_cannot_be_is_refused(fields: dict[str, float]) -> None:
    with pytest.raises(PolicyError):
        Policy(**fields)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("changes", "error"),
    [
        ({"servers": ("http://zero.example", SERVERS[1])}, AddressError),
        ({"servers": (SERVERS[0], SERVERS[0] + ":443/")}, AddressError),
        ({"servers": SERVERS[:1]}, AddressError),
        ({"task": TASK.upper()}, PinError),
        ({"task": TASK[:-1]}, PinError),
        ({"pins": ((),)}, PinError),
        ({"token": "two\nlines"}, EnrolmentError),
        ({"token": "t\u00f6ken"}, EnrolmentError),
        ({"hold_out": 1.0}, PolicyError),
        ({"hold_out": -0.1}, PolicyError),
        ({"epochs": 0}, PolicyError),
    ],
)
def test_an_opening_that_cannot_be_is_refused_before_anything_is_touched(
    tmp_path: Path, changes: dict[str, Any], error: type[Exception]
) -> None:
    good: dict[str, Any] = {"home": tmp_path / "home", "servers": SERVERS, "task": TASK}
    for opening in (Device.open, Device.open_blocking):
        with pytest.raises(error):
            opening(**good | changes)
    assert not (tmp_path / "home").exists()


def test_a_device_that_cannot_be_opened_lets_go_of_its_home(tmp_path: Path) -> None:
    good: dict[str, Any] = {"home": tmp_path, "servers": SERVERS, "task": TASK}
    for wrong, error in (({"key": b"short"}, HomeKeyError), ({"pins": (("short",), ())}, PinError)):
        opening = Device.open_blocking(**good | wrong)
        with pytest.raises(error):
            opening.__enter__()
    with Device.open_blocking(**good) as device:
        device.log(item=1, rating=2.0)


def test_an_opening_and_a_device_show_no_secret(tmp_path: Path) -> None:
    opening = Device.open_blocking(home=tmp_path, servers=SERVERS, task=TASK, token="hush", key=b"sixteen bytes ok")
    with opening as device:
        device.log(item=4711, rating=2.0)
        shown = repr(opening) + repr(device)
    assert not any(secret in shown for secret in ("hush", "sixteen", "4711"))


@pytest.mark.parametrize("blocking", [True, False])
def test_a_device_raises_and_counts_it_when_a_pin_does_not_hold(tmp_path: Path, blocking: bool) -> None:
    both, alone, _ = write_identity(tmp_path, "server")

    async def contribute(**opening: Any) -> list[Detection]:
        async with Device.open(**opening) as device:
            with pytest.raises(PinError, match="nothing was sent"):
                await device.contribute()
            return device.detections()

    def contribute_blocking(**opening: Any) -> list[Detection]:
        with Device.open_blocking(**opening) as device:
            with pytest.raises(PinError, match="nothing was sent"):
                device.contribute()
            return device.detections()

    with serving(answer(b"{}"), identity=both) as zero, serving(answer(b"{}"), identity=both) as one:
        opening: dict[str, Any] = {"home": tmp_path / "home", "servers": (zero.url, one.url), "task": TASK}
        opening |= {"trust": alone, "pins": (("00" * 32,), ())}
        for count in (1, 2):
            found = contribute_blocking(**opening) if blocking else asyncio.run(contribute(**opening))
            assert [(one.kind, one.count) for one in found] == [("server-key", count)]
        assert zero.everything == b""
