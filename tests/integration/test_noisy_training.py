"""Training with noise: what is clipped and added is what the accountant was told, and the report shows it."""

import json
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.unit.made_up_ratings import made_up_ratings
from typer import BadParameter

from secemb_shared.messages import RoundSpec
from secemb_shared.messages.privacy import RECORD, USER
from secemb_tools.datasets import split
from secemb_tools.report import dp
from secemb_tools.report.dp_runs import Plan, carry_out, plans
from secemb_tools.simulation.noisy import CENTRAL, LOCAL, NoisyTraining, Protection, SampledPopulation
from secemb_tools.simulation.recipes import Recipe

DATA = split(made_up_ratings(people=60, items=300, count=1500), seed=1)
RECIPE = Recipe(model="mf", rounds=5, cohort=20, capacity=50, bound=2**18, fraction_bits=12)


def noise_of(where: str, devices: int) -> float:
    """Return the variance of the sum over devices without ratings, in units of the clip's square."""
    training = NoisyTraining(RECIPE, DATA, seed=1, protection=Protection(unit=USER, clip=4096))
    round_ = RoundSpec(task=training.task, number=1, model_version=0, model_digest=training.model.digest)
    protection = Protection(unit=USER, clip=4096, multiplier=Fraction(2), where=where)
    empty = training._participant(0)
    nobody = type(empty)(
        type(empty.ratings)(empty.ratings.items[:0], empty.ratings.values[:0]),
        lambda ratings, rows: (np.zeros((0, training.task.row_width), np.float32), np.zeros(0, np.float32)),
    )
    total = protection.add(round_, training.model, [nobody] * devices)
    return float(total.rows.view(np.int32).astype(np.float64).var()) / 4096**2


def test_the_sum_carries_both_servers_noise_or_that_of_every_device() -> None:
    assert noise_of(CENTRAL, 10) == pytest.approx(2 * 4, rel=0.05)
    assert noise_of(LOCAL, 10) == pytest.approx(10 * 4, rel=0.05)


def test_each_device_takes_part_with_the_same_probability() -> None:
    population = SampledPopulation(DATA.train, RECIPE.models(DATA.train), cohort=20, seed=1)
    rounds = [population.people_of(number) for number in range(900)]
    counts = np.bincount(np.concatenate(rounds), minlength=60)
    assert abs(counts.mean() / 900 - 1 / 3) < 0.01
    assert len({people.size for people in rounds}) > 10  # a cohort of a fixed size would not be sampled like this


@pytest.mark.parametrize("unit", [USER, RECORD])
def test_more_privacy_costs_more_accuracy(unit: str) -> None:
    errors = []
    for multiplier in (None, Fraction(30)):
        protection = Protection(unit=unit, clip=4096, multiplier=multiplier)
        training = NoisyTraining(RECIPE, DATA, seed=1, protection=protection)
        for _ in range(30):
            training.step()
        errors.append(training.rmse())
    assert errors[0] < errors[1]


def test_a_plan_keeps_to_its_budget(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("secemb_tools.report.dp_runs.recipe_for", lambda *_: RECIPE)
    for where in (CENTRAL, LOCAL):
        plan = Plan(model="mf", cohort=20, unit=USER, where=where, budget=8.0, delta=1e-4, rounds=4)
        found = carry_out(plan, DATA, seed=1)
        assert found.spent is not None
        assert 7.5 < found.spent <= 8.0


def test_the_report_writes_a_table_and_curves(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("secemb_tools.report.dp_runs.recipe_for", lambda *_: RECIPE)
    monkeypatch.setattr(dp, "_read", lambda _: made_up_ratings(people=60, items=300, count=1500))
    request = dp.Request(
        path=tmp_path,
        models="mf",
        cohorts="20",
        budgets="4,8",
        unit=USER,
        delta=1e-4,
        rounds=3,
        seed=1,
        out=tmp_path / "dp.json",
    )
    assert dp.run(request) == 0
    runs = json.loads((tmp_path / "dp.json").read_text())["runs"]
    assert [(one["plan"]["where"], one["plan"]["budget"]) for one in runs] == [
        (CENTRAL, None),
        (CENTRAL, 4.0),
        (CENTRAL, 8.0),
        (LOCAL, 4.0),
        (LOCAL, 8.0),
    ]
    assert {path.name for path in tmp_path.glob("*.svg")} == {"dp-models-20.svg", "dp-local-20.svg"}


@pytest.mark.parametrize(
    "change",
    [{"cohorts": text} for text in ("abc", "0", "1", "100,", "10001")]
    + [{"budgets": text} for text in ("x", "0", "-1", "nan", "inf", "1,,2")]
    + [{"delta": number} for number in (0.0, 1e-11, 1.0, 2.0, float("nan"))],
    ids=str,
)
def test_what_cannot_be_planned_is_refused_before_anything_is_read(tmp_path: Path, change: dict[str, Any]) -> None:
    fields: dict[str, Any] = {
        "models": "mf",
        "cohorts": "20",
        "budgets": "4",
        "unit": USER,
        "delta": 1e-4,
        "rounds": 3,
        "seed": 1,
    }
    request = dp.Request(path=tmp_path / "nowhere", out=tmp_path / "dp.json", **(fields | change))
    with pytest.raises(BadParameter, match=f"--{next(iter(change))}"):
        dp.run(request)


def test_every_model_is_planned_with_central_noise_and_the_first_with_local_noise_too() -> None:
    found = list(plans(models=["mf", "fm"], cohorts=[100, 500], budgets=[1.0], unit=USER, delta=1e-5, rounds=None))
    assert len(found) == 2 * (2 + 1 + 2)
    assert {one.model for one in found if one.where == LOCAL} == {"mf"}
