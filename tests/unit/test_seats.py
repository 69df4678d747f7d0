"""How much one device may hold: seats for those who drop out, waits after silence, a rate of reads."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from secemb_party.errors import BusyError
from secemb_party.ledger import Conduct, Turnout
from secemb_server0.seats import ReadRate, SeatRules, Seats, back_off

NEW = Conduct(
    joined=0,
    completed=0,
    refused=0,
    rejected=0,
    silent=0,
    joined_at=None,
    problem=None,
    problem_at=None,
    suspended_at=None,
)


@pytest.mark.parametrize(
    ("keys", "ended", "limit"),
    [(0, 0, 100), (100, 100, 100), (100, 90, 112), (10, 7, 143), (100, 50, 200), (100, 1, 200), (100, 0, 200)],
)
def test_a_round_has_as_many_seats_as_fill_it_and_at_most_twice_its_cohort(keys: int, ended: int, limit: int) -> None:
    seats = Seats(SeatRules(), 100)
    assert seats.limit == 100
    seats.learn(Turnout(keys, ended))
    assert seats.limit == limit


@given(st.integers(1, 500), st.integers(0, 1000), st.floats(0, 1))
def test_those_who_usually_finish_fill_the_cohort(cohort: int, keys: int, part: float) -> None:
    seats, ended = Seats(SeatRules(), cohort), int(keys * part)
    seats.learn(Turnout(keys, ended))
    assert cohort <= seats.limit <= 2 * cohort
    if keys and ended / keys >= 0.5:
        assert seats.limit * ended / keys >= cohort - 1e-6


@pytest.mark.parametrize(
    ("silent", "seconds"), [(0, 0), (1, 0), (2, 60), (3, 120), (4, 240), (12, 61_440), (13, 86_400), (10**6, 86_400)]
)
def test_who_stays_silent_waits_twice_as_long_each_time(silent: int, seconds: float) -> None:
    conduct = replace(NEW, silent=silent, joined_at=1000.0)
    assert back_off(conduct, 1000.0) == seconds
    assert back_off(conduct, 1000.0 + seconds) == 0


def test_a_clock_that_was_set_back_keeps_nobody_out_for_longer_than_a_day() -> None:
    assert back_off(replace(NEW, silent=9, joined_at=1e9), 0.0) == 86_400
    assert back_off(NEW, 0.0) == 0


def test_reads_come_at_a_rate_of_their_own_for_each_device() -> None:
    now, waits = [0.0], list[int]()
    rate = ReadRate(6, lambda: now[0])

    def reads(device: bytes) -> bool:
        try:
            rate.take(device)
        except BusyError as error:
            waits.append(error.retry_after)
            return False
        return True

    assert [reads(b"one") for _ in range(8)] == [True] * 6 + [False] * 2
    assert waits == [10, 10]  # seconds
    assert reads(b"two")
    now[0] = 9.9
    assert not reads(b"one")
    now[0] = 20.0
    assert [reads(b"one") for _ in range(3)] == [True, True, False]
    now[0] = 1e6
    assert [reads(b"one") for _ in range(7)] == [True] * 6 + [False]
