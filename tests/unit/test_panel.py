"""What the evaluations of a trusted panel say together, and who is in it."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from secemb_party.errors import SettingsError
from secemb_party.ledger import Rollback
from secemb_server0.panel import Measured, Panel, judge, read_names, undone, watch_names

ALL = range(1000)


def history(*values: float, figure: str = "rmse") -> list[Measured]:
    """Return evaluations given in the order in which they were made."""
    made = [Measured(round=n, version=n, figure=figure, value=value) for n, value in enumerate(values)]
    return made[::-1]


@pytest.mark.parametrize(
    ("values", "worse", "best"),
    [
        ((), 0, None),
        ((1.0,), 0, 0),
        ((1.0, 1.06), 1, 0),
        ((1.0, 1.04, 1.04), 0, 0),
        ((1.0, 1.06, 1.06), 2, 0),
        ((1.0, 1.06, 1.04), 0, 0),  # the newest is within the margin
        ((1.0, 1.06, 1.04, 1.07), 1, 0),
        ((1.0, 0.9, 0.96, 0.95, 0.97), 3, 1),
        ((1.0, 1.0), 0, 1),  # of equal ones the newest
        ((2.0, 1.0, 0.5), 0, 2),
    ],
)
def test_the_newest_are_compared_with_the_best_before_them(
    values: tuple[float, ...], worse: int, best: int | None
) -> None:
    verdict = judge(history(*values), margin=0.05, kept=ALL)
    assert verdict.worse == worse
    assert (None if verdict.best is None else verdict.best.version) == best


def test_of_rankings_more_is_better() -> None:
    assert judge(history(0.5, 0.4, 0.4, figure="ndcg"), margin=0.05, kept=ALL).worse == 2
    assert judge(history(0.5, 0.6, 0.7, figure="ndcg"), margin=0.05, kept=ALL).worse == 0


def test_only_a_version_that_is_kept_can_be_gone_back_to() -> None:
    verdict = judge(history(1.0, 1.2, 2.0, 2.0), margin=0.05, kept=[1, 2, 3])
    assert verdict.worse == 2
    assert verdict.best is not None
    assert verdict.best.version == 1


@given(st.lists(st.floats(0.1, 10), max_size=8), st.floats(0.01, 0.5))
def test_the_verdict_is_what_it_says(values: list[float], margin: float) -> None:
    found = history(*values)
    verdict = judge(found, margin=margin, kept=ALL)
    if verdict.worse:
        assert verdict.best is not None
        assert all(one.value > verdict.best.value * (1 + margin) for one in found[: verdict.worse])
        assert verdict.best.value == min(one.value for one in found[verdict.worse :])
    else:
        assert not found or found[0].value <= (1 + margin) * min(one.value for one in found[1:] or found)


def test_what_a_rollback_has_undone_says_nothing_any_more() -> None:
    back = Rollback(task_id=bytes(32), seen=5, source=2, wished_at=0.0, ended_at=1.0, made=6)
    given_up = Rollback(task_id=bytes(32), seen=9, source=7, wished_at=0.0, ended_at=1.0, reason="refused")
    assert [version for version in range(10) if undone(version, [back, given_up])] == [3, 4, 5]


def test_the_names_are_read_again_when_the_file_changes(tmp_path: Path) -> None:
    path = tmp_path / "panel.txt"
    path.write_text("# our own phones\nanna\n\n  bert \n")
    assert read_names(path) == {"anna", "bert"}
    assert set(watch_names(path)()) == {"anna", "bert"}
    path.write_bytes(b"\xff\xfe")
    with pytest.raises(SettingsError, match=r"panel\.file"):
        watch_names(path)


def test_the_panel_is_asked_every_so_many_rounds() -> None:
    panel = Panel(tuple, every=5, margin=0.05)
    assert [number for number in range(20) if panel.is_due(number)] == [4, 9, 14, 19]
