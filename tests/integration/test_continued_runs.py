"""A kept run gets more rounds, or the plain run beside it, as if it had had them from the start."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from tests.e2e.commands import json_of, run
from tests.integration.small_runs import SMALL

from secemb_shared.messages import RoundSpec
from secemb_shared.messages.measures import Mark
from secemb_tools import simulate
from secemb_tools.errors import RunError
from secemb_tools.simulation import rounds
from secemb_tools.simulation.continuation import add_plain, continue_run, rounds_asked
from secemb_tools.simulation.engine import Row
from secemb_tools.simulation.rounds import PLAIN, PRIVATE
from secemb_tools.simulation.run import Run
from secemb_tools.simulation.view import show_run


def test_a_run_goes_on_where_it_ended_and_says_so(tmp_path: Path) -> None:
    short = simulate(**SMALL, runs=tmp_path, name="one")
    assert (len(short.rows), short.trained) == (7, 5)
    longer = continue_run(Run.load(tmp_path / "one"), rounds=8, runs=tmp_path)
    assert longer.rows[:7] == short.rows
    assert (len(longer.rows), longer.trained, longer.rows[-1].version) == (12, 8, 8)
    assert longer.task_id != short.task_id
    assert longer.rows[8].window["rounds"] == [2, 5, 8], "evaluations before and after count together"
    loaded = Run.load(tmp_path / "one")
    assert loaded.as_json() == json.loads(json.dumps(longer.as_json()))
    assert [tuple(one) for one in loaded.continued] == [(7, 5)]
    assert loaded.model.digest == longer.model.digest
    once_more = continue_run(loaded, rounds=9, runs=tmp_path)
    assert [tuple(one) for one in once_more.continued] == [(7, 5), (12, 8)]


def test_a_run_that_was_cut_short_goes_on_with_its_own_task(tmp_path: Path) -> None:
    whole = simulate(**SMALL)

    def cut(row: Row) -> None:
        if row.round == 3:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        simulate(**SMALL, runs=tmp_path, name="one", save_every=1, watch=cut)
    found = Run.load(tmp_path / "one")
    assert not found.finished
    ended = continue_run(found, rounds=5, runs=tmp_path)
    assert (ended.rows, ended.task_id, ended.continued) == (whole.rows, whole.task_id, [])


def test_a_run_that_stopped_early_goes_on_from_its_best_version_and_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(Row, "mark", property(lambda row: None if row.rmse is None else Mark(row.round)))  # worse
    early = simulate(**SMALL | {"rounds": 20, "patience": 2, "schedule": "constant"}, runs=tmp_path, name="one")
    assert (early.stopped, early.ended) == (True, "stopped early")
    assert early.trained < 20
    best, last = early.model.version, early.rows[-1].version
    assert best < last
    longer = continue_run(Run.load(tmp_path / "one"), rounds=early.trained + 3, runs=tmp_path)
    assert longer.trained == early.trained + 3
    assert longer.returns == [(len(early.rows), last, best)]
    show_run(longer)
    assert f"from v{best}, the best version" in capsys.readouterr().out
    for run_ in (early, longer):
        compared = add_plain(run_)
        assert compared.same_as_plain is True, "the plain run goes back to the same version"
        assert compared.engines[1].model.digest == compared.engines[0].model.digest


def test_vectors_that_do_not_help_are_left_out_at_the_end(tmp_path: Path) -> None:
    """Ratings of chance: devices measure that the biases do better."""
    random = np.random.default_rng(1)
    weights = np.arange(1, 61) ** -1.5
    lines: dict[str, list[Any]] = {"user": [], "item": [], "rating": []}
    for person in range(60):
        for item in random.choice(60, 15, replace=False, p=weights / weights.sum()).tolist():
            for name, value in zip(lines, (person, item, random.choice([1.0, 5.0])), strict=True):
                lines[name].append(value)
    data = pl.DataFrame(lines)
    whole: dict[str, Any] = {"data": data, "cohort": 20, "rounds": 40, "dimension": 16, "seed": 1}
    whole |= {"row_pull": 0.0, "person_penalty": 0.1, "penalty": 0.0, "rate": 0.1}  # nothing keeps vectors small
    found = simulate(**whole, runs=tmp_path, name="one")
    assert found.without_vectors
    assert not simulate(**whole | {"data": data.drop("rating"), "rounds": 26}).without_vectors, "rankings keep theirs"
    kept = Run.load(tmp_path / "one")
    for one in (found, kept):
        assert one.model.version == one.rows[-1].version + 1
        assert not one.model.rows[:, :-1].any()
        assert one.model.rows[:, -1].any()
    assert len(kept.recommend(user="3", k=4)) == 4
    assert simulate(**whole, runs=tmp_path, name="one").model.digest == found.model.digest, "it is not run again"
    compared = add_plain(kept)
    assert compared.same_as_plain is True
    assert compared.engines[1].model.digest == found.model.digest
    longer = continue_run(Run.load(tmp_path / "one"), rounds=41)
    assert longer.rows[-1].version == 41
    trained = longer.engines[0].whole or longer.model
    assert trained.rows[:, :-1].any(), "training goes on with the vectors"


def test_vectors_that_help_stay() -> None:
    found = simulate(devices=60, items=60, cohort=20, rounds=40, seed=1)
    assert found.window["rmse"] < found.window["biases_rmse"]
    assert not found.without_vectors
    assert found.model.digest.hex() == found.rows[-1].digest


def test_a_run_with_a_privacy_budget_has_no_more_rounds_than_its_noise_was_planned_for(tmp_path: Path) -> None:
    noisy = simulate(**SMALL, epsilon=8.0, runs=tmp_path, name="one")
    with pytest.raises(RunError, match="start a new run with more rounds"):
        continue_run(noisy, rounds=8)


def test_a_continued_run_takes_over_optimiser_and_private_parts(tmp_path: Path) -> None:
    simulate(**SMALL, runs=tmp_path, name="one")
    honest = continue_run(Run.load(tmp_path / "one"), rounds=7)
    forgetful = Run.load(tmp_path / "one")
    engine = forgetful.standing()[0]
    engine.optimiser.restore(replace(engine.optimiser.state(), steps=1000))  # planted: another state
    assert continue_run(forgetful, rounds=7).rows[-1].digest != honest.rows[-1].digest
    again = continue_run(Run.load(tmp_path / "one"), rounds=7)
    assert again.rows == honest.rows
    assert again.engines[0].privates.keys() == honest.engines[0].privates.keys() != set()


def test_the_plain_run_is_added_afterwards_and_is_the_same_to_the_last_bit(tmp_path: Path) -> None:
    simulate(**SMALL, runs=tmp_path, name="one")
    continue_run(Run.load(tmp_path / "one"), rounds=8, runs=tmp_path)
    compared = add_plain(Run.load(tmp_path / "one"), runs=tmp_path)
    assert compared.same_as_plain is True
    assert compared.plain is not None
    assert len(compared.plain) == 12
    both = continue_run(Run.load(tmp_path / "one"), rounds=9, runs=tmp_path)
    assert both.same_as_plain is True
    with pytest.raises(RunError, match="compare a private one"):
        add_plain(simulate(**SMALL, way=PLAIN))


def test_one_number_too_much_in_the_private_sum_is_noticed_afterwards(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def add_wrongly(round_: RoundSpec, model: Any, chosen: Any) -> Any:
        outcome = rounds.add_privately(round_, model, chosen)
        if outcome.shares[0].rows.size:
            outcome.shares[0].rows[0, 0] += 1
        return outcome

    with monkeypatch.context() as planted:
        planted.setitem(rounds.WAYS, PRIVATE, add_wrongly)
        simulate(**SMALL, runs=tmp_path, name="one")
    said = json_of("run compare", "one", "--plain", "--runs", tmp_path, code=1)
    assert said["same"] is False
    assert "DIFFERENT" in run("run", "show", "one", "--runs", tmp_path)


@pytest.mark.parametrize(("text", "rounds_"), [("+3", 8), ("9", 9)])
def test_rounds_are_asked_for_as_more_or_in_all(text: str, rounds_: int) -> None:
    assert rounds_asked(text, simulate(**SMALL)) == rounds_


@pytest.mark.parametrize("text", ["5", "+0", "-3", "many", "", "+", "1.5"])
def test_rounds_that_are_not_more_are_refused(text: str) -> None:
    with pytest.raises(RunError, match=r"--rounds"):
        rounds_asked(text, simulate(**SMALL))
