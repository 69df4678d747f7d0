"""When devices come back: at the wanted rate, not before the round opens, and each time among others."""

import heapq
import random
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from secemb_server0.pace import Pace

RATE, DEVICES, ROUND_SECONDS, COHORT = 20.0, 1000, 50.0, 100


def rounds_of_each(draw: Callable[[], float], *, rounds: int = 60) -> tuple[list[int], list[float]]:
    """Return in how many rounds each device was, and when devices came; the first to come after an opening are in.

    Devices' turns take as long as a round: 1,000 devices at 20 a second.
    """
    pace, randoms = Pace(RATE, draw), random.Random(1)
    calls = sorted((randoms.uniform(0, ROUND_SECONDS), device) for device in range(DEVICES))
    taken, came, inside = [0] * DEVICES, [], [0] * rounds
    while (call := heapq.heappop(calls))[0] < rounds * ROUND_SECONDS:
        now, device = call
        came.append(now)
        number = int(now // ROUND_SECONDS)
        if inside[number] < COHORT:
            inside[number] += 1
            taken[device] += 1
        opening = (number + 1) * ROUND_SECONDS
        heapq.heappush(calls, (now + pace.seconds(opening, now), device))
    return taken, came


def unevenness(taken: list[int]) -> float:
    """Return variance by mean: 0 where devices take turns, 1 in a lottery."""
    return float(np.var(taken) / np.mean(taken))


def test_devices_whose_turns_take_as_long_as_a_round_are_in_no_fewer_rounds_than_in_a_lottery() -> None:
    taken, came = rounds_of_each(random.Random(2).random)
    assert unevenness(taken) < 1.15
    by_second = np.bincount(np.array(came, dtype=np.int64))[int(ROUND_SECONDS) :]  # after the first calls
    assert 0.9 * RATE < by_second.mean() <= RATE
    assert np.percentile(by_second, 99) < 2 * RATE


def test_a_pace_that_lets_them_come_strictly_in_turn_is_found_out() -> None:
    taken, _ = rounds_of_each(lambda: 0.5)
    assert unevenness(taken) > 1.15


@given(st.floats(0, 1e5), st.floats(0, 1e4), st.floats(0, 1), st.integers(1, 50))
def test_nobody_is_asked_to_come_before_the_opening(now: float, later: float, drawn: float, before: int) -> None:
    pace = Pace(RATE, lambda: drawn)
    for _ in range(before):
        assert pace.seconds(now + later, now) >= min(later, 86_400)


@pytest.mark.parametrize(("load", "seconds"), [(0.0, 50), (0.5, 100), (1.0, 500)])
def test_a_busy_server_asks_for_fewer_devices_a_second(load: float, seconds: float) -> None:
    pace = Pace(RATE, random.Random(3).random)
    waits = [pace.seconds(10.0, 0.0, load=load) for _ in range(DEVICES)]
    assert max(waits) - 10 == pytest.approx(seconds, rel=0.2)


def test_a_crowd_that_comes_at_once_comes_back_at_the_wanted_rate() -> None:
    pace = Pace(RATE, random.Random(4).random)
    by_second = np.bincount([pace.seconds(60.0, place / 1000) for place in range(20_000)])
    assert by_second.max() < 2 * RATE
    assert len(by_second) < 1.2 * (60 + 20_000 / RATE)


@pytest.mark.parametrize("rate", [0.05, 0.3, 1.0])
def test_less_than_a_device_a_second_is_a_rate_too(rate: float) -> None:
    pace = Pace(rate, random.Random(5).random)
    waits = [pace.seconds(0.0, 0.0) for _ in range(100)]
    assert max(waits) == pytest.approx(100 / rate, rel=0.2)


def test_appointments_that_are_over_leave_no_trace() -> None:
    pace = Pace(RATE, random.Random(6).random)
    for _ in range(5000):
        pace.seconds(10.0, 0.0)
    assert pace.seconds(100_010.0, 100_000.0) <= 13
