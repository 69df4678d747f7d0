"""Outages in the log: a line when one begins, one for each new cause, a reminder, and one when it is over."""

import pytest
import structlog

from secemb_party.logs import REMIND_SECONDS, Outage


class Steady:
    """A clock that is turned by hand."""

    now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def steady() -> Steady:
    return Steady()


def test_a_flood_of_failures_is_one_line_with_a_count_at_the_end(
    steady: Steady, caplog: pytest.LogCaptureFixture
) -> None:
    outage = Outage("it fails", "it works again", steady=steady)
    for _ in range(1000):
        outage.failed("no answer")
    assert len(caplog.records) == 1
    steady.now += 7
    outage.worked()
    outage.worked()
    assert len(caplog.records) == 2
    assert [record.levelname for record in caplog.records] == ["WARNING", "WARNING"]
    assert "it works again" in caplog.records[1].getMessage()
    assert "1000" in caplog.records[1].getMessage()


def test_a_new_cause_is_told_and_many_causes_are_not(steady: Steady, caplog: pytest.LogCaptureFixture) -> None:
    outage = Outage("it fails", "it works again", steady=steady)
    for cause in ("away", "silent", "away", "silent"):
        outage.failed(cause)
    assert len(caplog.records) == 2
    for number in range(1000):
        outage.failed(f"cause {number}")
    assert len(caplog.records) == 8


def test_a_long_outage_is_told_again_now_and_then(steady: Steady, caplog: pytest.LogCaptureFixture) -> None:
    outage = Outage("it fails", "it works again", steady=steady)
    for _ in range(100):
        outage.failed("no answer")
        steady.now += REMIND_SECONDS / 10
    assert len(caplog.records) == 10


def test_the_next_outage_is_told_like_the_first(steady: Steady, caplog: pytest.LogCaptureFixture) -> None:
    outage = Outage("it fails", "it works again", steady=steady)
    for _ in range(3):
        outage.failed("no answer")
        outage.worked()
    assert len(caplog.records) == 6


def test_an_unexpected_error_is_told_by_type_and_place_without_its_words(
    steady: Steady, caplog: pytest.LogCaptureFixture
) -> None:
    outage = Outage("it fails", "it works again", level="error", steady=steady)
    try:
        raise ValueError("hunter2")
    except ValueError as error:
        outage.failed("ValueError", error)
    assert "hunter2" not in caplog.text
    assert "test_outage.py" in caplog.text
    assert structlog.contextvars.get_contextvars() == {}
