"""Grids: every combination once, the same runs as one by one, and seeds as mean and standard deviation."""

import statistics
from pathlib import Path
from typing import Any

import pytest

from secemb_tools import Run, grid, simulate
from secemb_tools.errors import ScenarioError
from secemb_tools.simulation.grid import fleet_figures

SMALL: dict[str, Any] = {"devices": 24, "cohort": 8, "rounds": 6, "items": 120, "evaluate_every": 3, "patience": 0}


def test_a_grid_has_the_runs_that_one_by_one_would_have_and_keeps_them(tmp_path: Path) -> None:
    found = grid({"dimension": [2, 4], "seed": [1, 2, 3]}, **SMALL, runs=tmp_path, processes=2)
    assert [(one["dimension"], one["seed"]) for one, _ in found] == [(2, 1), (2, 2), (2, 3), (4, 1), (4, 2), (4, 3)]
    for settings, run in found:
        assert run.table() == simulate(**SMALL, **settings).table()
        assert Run.load(tmp_path / run.name).model.digest.hex() == run.rows[-1].digest
    frame = found.to_frame()
    assert frame.columns[:4] == ["dimension", "seed", "rounds", "seconds"]
    assert frame["rmse"].to_list() == [run.window["rmse"] for run in found.runs]
    small, large = found.outcomes()
    assert (small.settings, small.seeds) == ({"dimension": 2}, (1, 2, 3))
    errors = [run.window["rmse"] for run in found.runs[3:]]
    assert large.figures["rmse"] == pytest.approx(statistics.fmean(errors))
    assert large.spread["rmse"] == pytest.approx(statistics.stdev(errors))
    assert str(large).startswith("dimension=4: ")
    assert f"rmse {large.figures['rmse']:.4f} ± {large.spread['rmse']:.4f}" in str(large)


def test_seeds_alone_are_one_outcome_and_one_seed_has_no_spread() -> None:
    (seeds,) = grid({"seed": [1, 2]}, **SMALL, processes=1).outcomes()
    assert (seeds.settings, seeds.seeds) == ({}, (1, 2))
    (alone,) = grid({"seed": [1]}, **SMALL, processes=1).outcomes()
    assert alone.spread == {}
    assert alone.figures == fleet_figures(simulate(**SMALL))


@pytest.mark.parametrize("over", [{}, {"seed": []}, {"loss": "bpr"}])
def test_a_grid_goes_over_lists(over: dict[str, Any]) -> None:
    with pytest.raises(ScenarioError, match="a list of values"):
        grid(over, **SMALL)


def test_a_setting_is_given_once() -> None:
    with pytest.raises(ScenarioError, match="'rounds' is both"):
        grid({"rounds": [1, 2]}, **SMALL)


@pytest.mark.parametrize(("loss", "beside"), [("squared", "biases_rmse"), ("bpr", "popular_ndcg")])
def test_runs_with_a_privacy_budget_have_figures_though_no_round_evaluates(loss: str, beside: str) -> None:
    (noisy,) = grid({"seed": [1, 2]}, **SMALL, epsilon=8.0, loss=loss, processes=1).outcomes()
    single = simulate(**SMALL, epsilon=8.0, loss=loss, seed=2)
    assert single.window == {}
    assert single.final is not None
    figure = "rmse" if loss == "squared" else "ndcg"
    assert fleet_figures(single)[figure] == single.final["model"][figure]["value"]
    assert {figure, beside} <= noisy.figures.keys() == noisy.spread.keys()
    assert f"{figure} {noisy.figures[figure]:.4f} ± " in str(noisy)
