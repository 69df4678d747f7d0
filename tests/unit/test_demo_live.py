"""The demonstration's view in a terminal: a line a round, a bar that says how long, and what is being done."""

from dataclasses import dataclass, field, replace
from io import StringIO

import pytest
from rich.console import Console

from secemb_tools.demo.live import LINES, LiveView
from secemb_tools.local.rounds import RoundRecord

RECORD = RoundRecord(
    round=0,
    kind="train",
    joined=40,
    retrieved=39,
    uploaded=38,
    matched=37,
    dropped=3,
    seconds=1.25,
    version=1,
    digest="abcdef0123",
    digests_equal=True,
    figures={},
)


@dataclass
class Terminal:
    """A terminal that keeps what is written on it, and a clock that stands still until it is set."""

    now: float = 0.0
    file: StringIO = field(default_factory=StringIO)

    def console(self, *, is_terminal: bool = True) -> Console:
        return Console(
            file=self.file,
            force_terminal=is_terminal,
            color_system=None,
            width=80,
            height=50,
            get_time=lambda: self.now,
        )

    def picture(self) -> list[str]:
        """Return the lines of the last picture, without the sign that shows the cursor again."""
        return self.file.getvalue().rsplit("\x1b[2K", 1)[-1].replace("\x1b[?25h", "").splitlines()


def test_before_the_first_round_there_is_a_bar_that_says_what_is_done() -> None:
    terminal = Terminal()
    with LiveView(terminal.console(), rounds=30):
        pass
    shown = terminal.file.getvalue()
    assert "starting two servers" in shown
    assert "0/30 rounds" in shown
    assert "counted" not in shown


def test_a_round_is_one_line_with_everything_that_both_operators_see() -> None:
    terminal = Terminal()
    with LiveView(terminal.console(), rounds=30) as view:
        view.show(RECORD, kilobytes=123.4)
    heading, _, line, bar = terminal.picture()
    assert heading.split() == ["round", "kind", "read", "sent", "counted", "dropped", "seconds", "RMSE", "kB", "model"]
    assert line.split() == ["1/30", "train", "39", "38", "37", "3", "1.2", "-", "123", "v1", "abcdef", "="]
    assert "1/30 rounds" in bar


@pytest.mark.parametrize("is_terminal", [True, False])
def test_a_round_takes_one_line_of_80_columns_with_large_numbers_too(is_terminal: bool) -> None:
    terminal = Terminal()
    large = replace(RECORD, round=998, retrieved=1000, uploaded=1000, matched=1000, dropped=0, seconds=100.0)
    with LiveView(terminal.console(is_terminal=is_terminal), rounds=999) as view:
        view.show(replace(large, version=999, kind="evaluate", figures={"rmse": 0.98765}), kilobytes=1000)
    lines = terminal.picture()
    (line,) = (one for one in lines if one.startswith("999/999 "))
    assert line.split()[1:] == [
        "evaluate",
        "1000",
        "1000",
        "1000",
        "0",
        "100.0",
        "0.988",
        "1000",
        "v999",
        "abcdef",
        "=",
    ]
    assert max(map(len, lines)) <= 80


def test_digests_that_differ_and_the_fleets_error_are_seen_and_the_error_stays() -> None:
    terminal = Terminal()
    with LiveView(terminal.console(), rounds=30) as view:
        view.show(replace(RECORD, kind="evaluate", figures={"rmse": 0.98765}), kilobytes=1)
        view.show(replace(RECORD, round=1, version=2, digests_equal=False), kilobytes=1)
    *_, evaluated, trained, _ = terminal.picture()
    assert evaluated.split()[1] == "evaluate"
    assert evaluated.split()[7] == trained.split()[7] == "0.988"
    assert [trained.split()[0], *trained.split()[-3:]] == ["2/30", "v2", "abcdef", "≠"]


def test_only_the_last_rounds_are_shown_together() -> None:
    terminal = Terminal()
    with LiveView(terminal.console(), rounds=LINES + 5) as view:
        for number in range(LINES + 5):
            view.show(replace(RECORD, round=number), kilobytes=1)
    shown = [line.split()[0] for line in terminal.picture()[2:-1]]
    assert shown == [f"{number + 1}/{LINES + 5}" for number in range(5, LINES + 5)]


def test_the_bar_says_how_long_it_took_and_how_long_it_will_take() -> None:
    terminal = Terminal()
    with LiveView(terminal.console(), rounds=30) as view:
        view.say("devices take part")
        for number in range(10):
            terminal.now += 6
            view.show(replace(RECORD, round=number), kilobytes=1)
    bar = terminal.picture()[-1]
    assert "devices take part" in bar
    assert "10/30 rounds" in bar
    assert "0:01:00 left 0:02:00" in bar
