"""Training with noise: what is clipped and added is what the accountant was told, and the report shows it."""

import json
from collections.abc import Iterator
from dataclasses import replace
from fractions import Fraction
from functools import partial, reduce
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.unit.made_up_ratings import made_up_ratings
from tests.unit.noise_bytes import SeededSource
from typer import BadParameter

from secemb_lab.report import dp, dp_file
from secemb_lab.report.dp_runs import Outcome, Plan, carry_out, plans
from secemb_party.accountant import solve_multiplier
from secemb_party.evaluation import Share
from secemb_sdk.models import Ratings
from secemb_shared.messages import RoundSpec
from secemb_shared.messages.privacy import RECORD, USER
from secemb_shared.prg import RingArray
from secemb_shared.privacy import add_noise
from secemb_tools.datasets import split
from secemb_tools.simulation import noisy
from secemb_tools.simulation.noisy import (
    CENTRAL,
    LOCAL,
    NoisyTraining,
    Protection,
    SampledPopulation,
    rounds_of_the_busiest,
)
from secemb_tools.simulation.recipes import Recipe
from secemb_tools.simulation.summing import Participant

DATA = split(made_up_ratings(people=60, items=300, count=1500), seed=1)
RECIPE = Recipe(model="mf", rounds=5, cohort=20, capacity=50, bound=2**18, fraction_bits=12)
PLANNED: dict[str, Any] = {
    "models": "mf",
    "cohorts": "20",
    "budgets": "4",
    "unit": USER,
    "delta": 1e-4,
    "rounds": 3,
    "seed": 1,
}

CLIP, MULTIPLIER, DEVICES = 4096, Fraction(2), 10
SIGMA = CLIP * float(MULTIPLIER)
TRAINING = NoisyTraining(RECIPE, DATA, seed=1, protection=Protection(unit=USER, clip=CLIP))
ROUND = RoundSpec(
    task=replace(TRAINING.task, dense_size=3000), number=1, model_version=0, model_digest=TRAINING.model.digest
)
SAME = Participant(
    Ratings(np.array([2, 7]), np.array([1.0, 5.0], dtype=np.float32)),
    lambda _, rows: (np.full_like(rows, 0.5), np.full(3000, -0.25, dtype=np.float32)),
)


@pytest.fixture
def seeded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let noise come from a seed, so that a variance that is measured is the same each time."""
    source = SeededSource(7)

    def add(values: RingArray, *, variance: int) -> None:
        add_noise(values, variance=variance, random_bytes=source)

    monkeypatch.setattr(noisy, "add_noise", add)


@pytest.fixture
def uploads(monkeypatch: pytest.MonkeyPatch) -> list[Share]:
    """Return what devices with noise of their own send, as it comes."""
    sent: list[Share] = []
    upload = Protection.upload

    def kept(*parts: Any) -> Share:
        sent.append(upload(*parts))
        return sent[-1]

    monkeypatch.setattr(Protection, "upload", kept)
    return sent


def of_devices(**changes: Any) -> Protection:
    return Protection(unit=USER, clip=CLIP, where=LOCAL, **{"multiplier": MULTIPLIER, **changes})


def of_servers() -> Protection:
    return Protection(unit=USER, clip=CLIP, multiplier=MULTIPLIER)


def noise_on(blurred: Share, devices: int) -> Iterator[np.ndarray]:
    """Yield how far rows and dense part are from what so many devices that say the same add up to."""
    plain = of_devices(multiplier=None).add(ROUND, TRAINING.model, [SAME] * devices)
    assert plain.rows[[2, 7]].all()
    assert plain.dense.all()
    yield (blurred.rows - plain.rows).view(np.int32).astype(np.float64)
    yield (blurred.dense - plain.dense).view(np.int32).astype(np.float64)


def check(noise: np.ndarray, variance: float) -> None:
    """Hold the noise against a Gaussian around zero: six standard errors of its mean and of its variance."""
    assert abs(noise.mean()) < 6 * (variance / noise.size) ** 0.5
    assert abs(noise.var() / variance - 1) < 6 * (2 / noise.size) ** 0.5


@pytest.mark.usefixtures("seeded")
@pytest.mark.parametrize(
    ("protection", "times"),
    [(of_servers(), 2), (of_devices(), DEVICES), (of_devices(device_by_device=True), DEVICES)],
    ids=["servers", "devices, all at once", "device by device"],
)
def test_the_sum_carries_both_servers_noise_or_that_of_every_device(protection: Protection, times: int) -> None:
    for noise in noise_on(protection.add(ROUND, TRAINING.model, [SAME] * DEVICES), DEVICES):
        check(noise, times * SIGMA**2)


@pytest.mark.usefixtures("seeded")
def test_a_device_blurs_every_element_before_it_sends_anything() -> None:
    protection = of_devices()
    uploads = [protection.upload(ROUND, TRAINING.model, SAME) for _ in range(2)]
    first, second = (list(noise_on(own, 1)) for own in uploads)
    for noise, other in zip(first, second, strict=True):
        check(noise, SIGMA**2)
        check(noise - other, 2 * SIGMA**2)  # each draws its own
    assert first[0].any(axis=1).all()  # rows without a rating too


def test_device_by_device_the_sum_is_that_of_what_devices_send(uploads: list[Share]) -> None:
    total = of_devices(device_by_device=True).add(ROUND, TRAINING.model, [SAME] * 3)
    first, second, third = uploads
    assert total.encode() == (first + second + third).encode()


def test_drawing_for_all_devices_at_once_is_drawing_for_each() -> None:
    """Compare the exact distributions, for a σ of 3 where the smallest that is ever drawn has 256."""

    def gaussian(variance: int) -> np.ndarray:
        weights = np.exp(-(np.arange(-400, 401) ** 2) / (2 * variance))
        return np.asarray(weights / weights.sum())

    added = reduce(partial(np.convolve, mode="same"), [gaussian(9)] * DEVICES)
    assert np.abs(added - gaussian(9 * DEVICES)).sum() < 1e-12


def test_each_device_takes_part_with_the_same_probability() -> None:
    population = SampledPopulation(DATA.train, RECIPE.models(DATA.train), cohort=20, seed=1)
    rounds = [population.people_of(number) for number in range(900)]
    counts = np.bincount(np.concatenate(rounds), minlength=60)
    assert abs(counts.mean() / 900 - 1 / 3) < 0.01
    assert len({people.size for people in rounds}) > 10  # a cohort of a fixed size would not be sampled like this


def test_a_devices_budget_is_that_of_the_busiest(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("secemb_lab.report.dp_runs.recipe_for", lambda *_: RECIPE)
    population = SampledPopulation(DATA.train, RECIPE.models(DATA.train), cohort=20, seed=1)
    counts = np.bincount(np.concatenate([population.people_of(number) for number in range(6)]))
    busiest = rounds_of_the_busiest(6, people=60, cohort=20, seed=1)
    assert busiest == counts.max() > 2  # on average they take part in two
    plan = Plan(model="mf", cohort=20, unit=USER, where=LOCAL, budget=8.0, delta=1e-4, rounds=6)
    found = carry_out(plan, DATA, seed=1)
    assert found.multiplier == float(solve_multiplier(budget=8.0, delta=1e-4, rounds=busiest))


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
    monkeypatch.setattr("secemb_lab.report.dp_runs.recipe_for", lambda *_: RECIPE)
    for where in (CENTRAL, LOCAL):
        plan = Plan(model="mf", cohort=20, unit=USER, where=where, budget=8.0, delta=1e-4, rounds=4)
        found = carry_out(plan, DATA, seed=1)
        assert found.spent is not None
        assert 7.5 < found.spent <= 8.0


@pytest.mark.parametrize("device_by_device", [False, True])
@pytest.mark.parametrize("model", ["mf", "ncf", "fm", "deepfm"])
def test_every_model_can_be_trained_with_noise_of_the_devices(
    monkeypatch: pytest.MonkeyPatch, uploads: list[Share], model: str, device_by_device: bool
) -> None:
    pytest.importorskip("torch")
    small = replace(RECIPE, model=model, dimension=4)
    monkeypatch.setattr("secemb_lab.report.dp_runs.recipe_for", lambda *_: small)
    plan = Plan(model=model, cohort=5, unit=USER, where=LOCAL, budget=8.0, delta=1e-4, rounds=2)
    found = carry_out(plan, DATA, seed=1, device_by_device=device_by_device)
    assert np.isfinite(found.rmse)
    assert bool(uploads) == device_by_device
    assert all(own.dense.size == small.models(DATA.train)(0).dense_size for own in uploads)


def test_the_report_writes_a_table_and_curves(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, uploads: list[Share]
) -> None:
    monkeypatch.setattr("secemb_lab.report.dp_runs.recipe_for", lambda *_: RECIPE)
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
        device_by_device=True,
    )
    assert dp.run(request) == 0
    assert uploads
    runs = json.loads((tmp_path / "dp.json").read_text())["runs"]
    assert [(one["plan"]["where"], one["plan"]["budget"]) for one in runs] == [
        (CENTRAL, None),
        (CENTRAL, 4.0),
        (CENTRAL, 8.0),
        (LOCAL, 4.0),
        (LOCAL, 8.0),
    ]
    assert {path.name for path in tmp_path.glob("*.svg")} == {"dp-20.svg"}


SOURCE = dp_file.Source(ratings="ML100K", seed=1, unit=USER)


def outcome(rmse: float, **changes: Any) -> Outcome:
    fields: dict[str, Any] = {"model": "mf", "cohort": 20, "where": CENTRAL, "budget": 4.0, "rounds": 3}
    plan = Plan(unit=USER, delta=1e-4, **(fields | changes))
    return Outcome(plan=plan, multiplier=1.0, spent=3.9, rmse=rmse, best=rmse)


def test_a_report_goes_on_from_what_was_measured_before(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    carried_out: list[Plan] = []

    def carry(plan: Plan, *_: Any, **__: Any) -> Outcome:
        carried_out.append(plan)
        return outcome(1.25, **{name: getattr(plan, name) for name in ("model", "where", "budget", "rounds")})

    monkeypatch.setattr(dp, "carry_out", carry)
    monkeypatch.setattr(dp, "_read", lambda _: made_up_ratings(people=60, items=300, count=1500))
    out = tmp_path / "dp.json"
    before = [outcome(1.0), outcome(0.875, model="deepfm", rounds=2)]
    dp_file.write(out, replace(SOURCE, ratings=DATA.train.name), before, control=0.9)
    request = dp.Request(path=tmp_path, out=out, resume=True, **PLANNED)
    assert dp.run(request) == 0
    assert [(plan.where, plan.budget) for plan in carried_out] == [(CENTRAL, None), (LOCAL, 4.0)]
    assert out.with_suffix(".md").read_text().splitlines() == [
        "| model | cohort | rounds | noise | none | ε = 4 |",
        "| --- | --- | --- | --- | --- | --- |",
        "| MF | 20 | 3 | servers | 1.250 | 1.000 |",
        "| MF | 20 | 3 | devices |  | 1.250 |",
        "| DeepFM | 20 | 2 | servers |  | 0.875 |",
    ]
    picture = (tmp_path / "dp-20.svg").read_text()
    assert picture.count("<polyline") == 4
    assert picture.count('stroke-dasharray="2 6"') == picture.count(" rounds<") == 2
    carried_out.clear()
    assert dp.run(request) == 0
    assert carried_out == []


@pytest.mark.parametrize("change", [{"seed": 2}, {"ratings": "ML1M"}, {"unit": RECORD}], ids=str)
def test_figures_of_something_else_are_not_gone_on_from(tmp_path: Path, change: dict[str, Any]) -> None:
    out = tmp_path / "dp.json"
    dp_file.write(out, SOURCE, [outcome(1.0)], control=0.9)
    assert dp_file.read(out, SOURCE) == [outcome(1.0)]
    with pytest.raises(BadParameter, match="--resume"):
        dp_file.read(out, replace(SOURCE, **change))


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"ratings": "ML100K", "seed": 1, "runs": [{"plan": {}}]}'])
def test_a_file_without_figures_is_not_gone_on_from(tmp_path: Path, text: str) -> None:
    out = tmp_path / "dp.json"
    assert dp_file.read(out, SOURCE) == []  # there is none yet
    out.write_text(text)
    with pytest.raises(BadParameter, match="--resume"):
        dp_file.read(out, SOURCE)


@pytest.mark.parametrize(
    "change",
    [{"cohorts": text} for text in ("abc", "0", "1", "100,", "10001")]
    + [{"budgets": text} for text in ("x", "0", "-1", "nan", "inf", "1,,2")]
    + [{"delta": number} for number in (0.0, 1e-11, 1.0, 2.0, float("nan"))],
    ids=str,
)
def test_what_cannot_be_planned_is_refused_before_anything_is_read(tmp_path: Path, change: dict[str, Any]) -> None:
    request = dp.Request(path=tmp_path / "nowhere", out=tmp_path / "dp.json", **(PLANNED | change))
    with pytest.raises(BadParameter, match=f"--{next(iter(change))}"):
        dp.run(request)


def test_every_model_is_planned_without_noise_and_with_that_of_servers_and_of_devices() -> None:
    found = list(plans(models=["mf", "fm"], cohorts=[100, 500], budgets=[1.0], unit=USER, delta=1e-5, rounds=None))
    assert len(found) == len(set(found)) == 2 * 2 * 3
    assert {(one.model, one.where) for one in found if one.budget} == {
        (model, where) for model in ("mf", "fm") for where in (CENTRAL, LOCAL)
    }
