"""Training with noise: what is clipped and added is what the accountant was told, and the report shows it."""

import json
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial, reduce
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.unit.made_up_ratings import made_up_ratings

from secemb_lab.report import dp, dp_file
from secemb_lab.report.dp_runs import Outcome, Plan, carry_out, plans
from secemb_party.accountant import solve_multiplier
from secemb_party.evaluation import Share
from secemb_sdk.models import Floats, Gradients, MatrixFactorisation, Model, Ratings
from secemb_shared.messages.privacy import RECORD, USER, BudgetLine, Privacy
from secemb_tools.datasets import split
from secemb_tools.errors import OperationError
from secemb_tools.simulation import rounds
from secemb_tools.simulation.devices import Devices
from secemb_tools.simulation.engine import CENTRAL, LOCAL, NO_NOISE, Engine
from secemb_tools.simulation.noise import NoiseOptions, calmed
from secemb_tools.simulation.recipes import Recipe
from secemb_tools.simulation.rounds import PLAIN, PRIVATE
from secemb_tools.simulation.scenario import make_world
from secemb_tools.simulation.world import Sampled, World, world_for

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

CLIP, MULTIPLIER, DEVICES = 4096, 2, 10
SIGMA = CLIP * MULTIPLIER
TEN = replace(RECIPE, cohort=DEVICES)
ITEMS = DATA.train.item_count


def private_world(
    *, unit: str = USER, multiplier: int = MULTIPLIER, dense_size: int = 0, recipe: Recipe = RECIPE
) -> World:
    """Return a world whose task clips and has noise; `dense_size` is for a model of no name."""
    line = BudgetLine(clip=CLIP, multiplier=str(multiplier), epsilon="8")
    privacy = Privacy(unit=unit, delta="0.0001", train=line)
    world = world_for(recipe, DATA.train, seed=1, privacy=privacy, bound=50 * CLIP)
    return world if not dense_size else Alike(**{**vars(world), "task": replace(world.task, dense_size=dense_size)})


class Steady(MatrixFactorisation):
    """A model whose gradients are always the same."""

    @property
    def dense_size(self) -> int:
        return 3000

    def gradients(self, rows: Floats, dense: Floats, private: Floats, ratings: Ratings) -> Gradients:
        by_dense = np.full(dense.shape, -0.25, dtype=np.float32)
        return Gradients(0.0, np.full_like(rows, 0.5), by_dense, np.zeros_like(private))


@dataclass(frozen=True, kw_only=True, repr=False, eq=False)
class Alike(World):
    """A world in which every device has a steady model."""

    def model_of(self, person: int) -> Model:
        return Steady()


def sum_of(noise: str, *, device_by_device: bool = False) -> Share:
    """Return the sum of the first round of ten devices with a dense part."""
    world = private_world(dense_size=3000, recipe=TEN)
    found: list[Share] = []

    def keep(_optimiser: Any, _task: Any, model: Any, total: Share, _sessions: int) -> Any:
        found.append(total)
        return model

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("secemb_tools.simulation.engine.move_model", keep)
        Engine(world, way=PLAIN, noise=noise, device_by_device=device_by_device).step()
    return found[0]


def noise_on(blurred: Share) -> Iterator[np.ndarray]:
    """Yield how far rows and dense part of the first round's sum are from the sum without noise."""
    plain = sum_of(NO_NOISE)
    assert plain.rows.any()
    assert plain.dense.all()
    yield (blurred.rows - plain.rows).view(np.int32).astype(np.float64)
    yield (blurred.dense - plain.dense).view(np.int32).astype(np.float64)


@pytest.fixture
def uploads(monkeypatch: pytest.MonkeyPatch) -> list[Share]:
    """Return what devices with noise of their own send, as it comes."""
    sent: list[Share] = []
    update = rounds.blurred_update

    def kept(*parts: Any) -> Any:
        outcome = update(*parts)
        sent.append(outcome.shares[0])
        return outcome

    monkeypatch.setattr(rounds, "blurred_update", kept)
    return sent


def check(noise: np.ndarray, variance: float) -> None:
    """Hold the noise against a Gaussian around zero: six standard errors of its mean and of its variance."""
    assert abs(noise.mean()) < 6 * (variance / noise.size) ** 0.5
    assert abs(noise.var() / variance - 1) < 6 * (2 / noise.size) ** 0.5


@pytest.mark.parametrize(
    ("noise", "device_by_device", "times"),
    [(CENTRAL, False, 2), (LOCAL, False, DEVICES), (LOCAL, True, DEVICES)],
    ids=["servers", "devices, all at once", "device by device"],
)
def test_the_sum_carries_both_servers_noise_or_that_of_every_device(
    noise: str, device_by_device: bool, times: int
) -> None:
    for found in noise_on(sum_of(noise, device_by_device=device_by_device)):
        check(found, times * SIGMA**2)


def test_a_device_blurs_every_element_before_it_sends_anything(uploads: list[Share]) -> None:
    sum_of(LOCAL, device_by_device=True)
    first, second = uploads[:2]
    rows, dense = ((one - other).view(np.int32).astype(np.float64) for one, other in _parts(first, second))
    check(dense, 2 * SIGMA**2)  # both say the same, and each draws its own
    neither = np.abs(rows).max(axis=1) < 20 * SIGMA  # nearly all: rows that one of them has rated are no different
    assert neither.sum() > ITEMS // 2
    check(rows[neither], 2 * SIGMA**2)
    for one in uploads:
        assert one.rows.any(axis=1).all()  # rows without a rating too


def _parts(first: Share, second: Share) -> list[tuple[np.ndarray, np.ndarray]]:
    return [(first.rows, second.rows), (first.dense, second.dense)]


def test_device_by_device_the_sum_is_that_of_what_devices_send(uploads: list[Share]) -> None:
    total = sum_of(LOCAL, device_by_device=True)
    assert len(uploads) == DEVICES
    assert total.encode() == sum(uploads[1:], start=uploads[0]).encode()


def test_drawing_for_all_devices_at_once_is_drawing_for_each() -> None:
    """Compare the exact distributions, for a σ of 3 where the smallest that is ever drawn has 256."""

    def gaussian(variance: int) -> np.ndarray:
        weights = np.exp(-(np.arange(-400, 401) ** 2) / (2 * variance))
        return np.asarray(weights / weights.sum())

    added = reduce(partial(np.convolve, mode="same"), [gaussian(9)] * DEVICES)
    assert np.abs(added - gaussian(9 * DEVICES)).sum() < 1e-12


def test_each_device_takes_part_with_the_same_probability() -> None:
    schedule = Sampled(people=60, cohort=20, seed=1)
    drawn = [schedule.people_of(number) for number in range(900)]
    counts = np.bincount(np.concatenate(drawn), minlength=60)
    assert abs(counts.mean() / 900 - 1 / 3) < 0.01
    assert schedule.largest_cohort(900) == max(people.size for people in drawn)
    assert len({people.size for people in drawn}) > 10  # a cohort of a fixed size would not be sampled like this


def test_a_devices_budget_is_that_of_the_busiest() -> None:
    schedule = Sampled(people=60, cohort=20, seed=1)
    counts = np.bincount(np.concatenate([schedule.people_of(number) for number in range(6)]))
    busiest = schedule.most_rounds_of_one(6)
    assert busiest == counts.max() > 2  # on average they take part in two
    plan = Plan(model="mf", cohort=20, unit=USER, where=LOCAL, budget=8.0, delta=1e-4, rounds=6)
    found = carry_out(plan, DATA, seed=1)
    assert found.multiplier == float(solve_multiplier(budget=8.0, delta=1e-4, rounds=busiest))


@pytest.mark.parametrize("unit", [USER, RECORD])
def test_more_privacy_costs_more_accuracy(unit: str) -> None:
    errors = []
    for noise in (NO_NOISE, CENTRAL):
        longer = replace(RECIPE, rounds=30, centre=3.5)
        engine = Engine(private_world(unit=unit, multiplier=30, recipe=longer), way=PLAIN, noise=noise)
        for _ in range(30):
            engine.step()
        errors.append(engine.rmse(DATA.test))
    assert errors[0] < errors[1]


@pytest.mark.parametrize("unit", [USER, RECORD])
@pytest.mark.parametrize("model", ["mf", "fm"])
def test_with_noise_a_private_run_is_the_plain_one_to_the_last_bit(model: str, unit: str) -> None:
    if model != "mf":
        pytest.importorskip("torch")
    small = replace(RECIPE, model=model, dimension=4, cohort=5)
    runs = [Engine(private_world(unit=unit, recipe=small), way=way) for way in (PLAIN, PRIVATE)]
    tables = [[engine.step() for _ in range(3)] for engine in runs]
    assert tables[0] == tables[1]
    without = Engine(private_world(unit=unit, recipe=small), way=PLAIN, noise=NO_NOISE)
    assert [without.step() for _ in range(3)] != tables[0]


@pytest.mark.parametrize("unit", [USER, RECORD])
def test_what_devices_add_is_cut_to_the_clip(unit: str) -> None:
    """A round of two: what they add together is no longer than two clips, or two for each rating."""
    world = private_world(unit=unit, recipe=replace(RECIPE, cohort=2))
    people = world.schedule.people_of(0).tolist()
    found = rounds.take_part(
        Devices(world),
        rounds.Part(way=PLAIN, number=0, model=Engine(world, way=PLAIN).model, people=dict.fromkeys(people)),
    )
    steps = found.shares[0].rows.view(np.int32).astype(np.float64)
    lengths = [np.linalg.norm(steps)] if unit == USER else np.linalg.norm(steps, axis=1).tolist()
    assert 0 < max(lengths) <= 2 * CLIP
    assert max(lengths) > CLIP / 2  # something had to be cut


def test_noise_of_devices_has_no_place_in_the_protocol() -> None:
    for way, world in ((PRIVATE, private_world()), (PLAIN, world_for(RECIPE, DATA.train, seed=1))):
        with pytest.raises(ValueError, match="plain run of a task with a privacy budget"):
            Engine(world, way=way, noise=LOCAL)


def test_a_plan_keeps_to_its_budget() -> None:
    for where in (CENTRAL, LOCAL):
        plan = Plan(model="mf", cohort=20, unit=USER, where=where, budget=8.0, delta=1e-4, rounds=4)
        found = carry_out(plan, DATA, seed=1)
        assert found.spent is not None
        assert 7.5 < found.spent <= 8.0


def test_the_rate_falls_with_the_variance_of_loud_noise_and_never_rises() -> None:
    options, recipe = NoiseOptions(epsilon=1.0, unit=USER), replace(RECIPE, optimiser="momentum", bias_rate=0.3)
    rates = [calmed(recipe, options, multiplier=multiplier).bias_rate for multiplier in (0.001, 0.01, 4, 8)]
    assert rates[:2] == [0.3, 0.3]
    assert rates[2] < 0.3
    assert rates[3] == pytest.approx(rates[2] / 4)
    assert calmed(recipe, options, multiplier=4, sources=8).bias_rate == pytest.approx(rates[2] / 4)


def test_the_rate_of_adam_and_a_rate_that_is_given_stay_whatever_the_noise() -> None:
    noise = NoiseOptions(epsilon=1.0, unit=USER)
    assert calmed(RECIPE, noise, multiplier=100) == RECIPE
    assert make_world(data=DATA.train, noise=noise, rounds=3, bias_rate=0.2).recipe.bias_rate == 0.2
    assert make_world(data=DATA.train, noise=noise, rounds=3).recipe.bias_rate < 0.2


@pytest.mark.parametrize("device_by_device", [False, True])
@pytest.mark.parametrize("model", ["mf", "ncf", "fm", "deepfm"])
def test_every_model_can_be_trained_with_noise_of_the_devices(
    uploads: list[Share], model: str, device_by_device: bool
) -> None:
    pytest.importorskip("torch")
    small = Recipe.by_rule(DATA.train, model=model, unit=USER)
    plan = Plan(model=model, cohort=5, unit=USER, where=LOCAL, budget=8.0, delta=1e-4, rounds=2)
    found = carry_out(plan, DATA, seed=1, device_by_device=device_by_device)
    assert np.isfinite(found.rmse)
    assert bool(uploads) == device_by_device
    assert all(own.dense.size == small.models(DATA.train)(0).dense_size for own in uploads)


def test_the_report_writes_a_table_and_curves(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, uploads: list[Share]
) -> None:
    monkeypatch.setattr(dp, "read_ratings", lambda _: made_up_ratings(people=60, items=300, count=1500))
    request = dp.DpOptions(
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


@pytest.mark.parametrize("unit", [USER, RECORD])
@pytest.mark.parametrize(
    ("people", "each", "lowest", "highest"), [(30, 8, 1, 5), (120, 1, 0, 1), (150, 20, -1000, 1000)]
)
def test_the_report_is_of_any_set_of_ratings(
    people: int, each: int, lowest: int, highest: int, unit: str, tmp_path: Path
) -> None:
    random = np.random.default_rng(1)
    lines = [f"{one};x{item}" for one in range(people) for item in random.choice(40, each, replace=False).tolist()]
    marks = random.integers(lowest, highest + 1, len(lines)).tolist()
    path, out = tmp_path / "mine.csv", tmp_path / "dp.json"
    path.write_text("\n".join(["uid;product;score", *map("{};{}".format, lines, marks)]) + "\n")
    request = dp.DpOptions(path=path, out=out, **PLANNED | {"cohorts": "", "budgets": "8", "unit": unit, "rounds": 2})
    assert dp.run(request) == 0
    runs = json.loads(out.read_text())["runs"]
    assert len(runs) == 3
    assert all(0 <= one["rmse"] <= highest - lowest for one in runs)
    # No round is said to have more devices than there are people.
    assert {one["plan"]["cohort"] for one in runs} == {6 if people == 30 else 100}
    with pytest.raises(OperationError, match=f"{people:,} people; use fewer"):
        dp.run(replace(request, cohorts="20,500"))


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
    monkeypatch.setattr(dp, "read_ratings", lambda _: made_up_ratings(people=60, items=300, count=1500))
    out = tmp_path / "dp.json"
    before = [outcome(1.0), outcome(0.875, model="deepfm", rounds=2)]
    dp_file.write(out, replace(SOURCE, ratings=DATA.train.name), before, control=0.9)
    request = dp.DpOptions(path=tmp_path, out=out, resume=True, **PLANNED)
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
    with pytest.raises(OperationError, match="--resume"):
        dp_file.read(out, replace(SOURCE, **change))


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"ratings": "ML100K", "seed": 1, "runs": [{"plan": {}}]}'])
def test_a_file_without_figures_is_not_gone_on_from(tmp_path: Path, text: str) -> None:
    out = tmp_path / "dp.json"
    assert dp_file.read(out, SOURCE) == []  # there is none yet
    out.write_text(text)
    with pytest.raises(OperationError, match="--resume"):
        dp_file.read(out, SOURCE)


@pytest.mark.parametrize(
    "change",
    [{"cohorts": text} for text in ("abc", "0", "1", "100,", "10001")]
    + [{"budgets": text} for text in ("x", "0", "-1", "nan", "inf", "1,,2")]
    + [{"delta": number} for number in (0.0, 1e-11, 1.0, 2.0, float("nan"))],
    ids=str,
)
def test_what_cannot_be_planned_is_refused_before_anything_is_read(tmp_path: Path, change: dict[str, Any]) -> None:
    request = dp.DpOptions(path=tmp_path / "nowhere", out=tmp_path / "dp.json", **(PLANNED | change))
    with pytest.raises(OperationError, match=f"--{next(iter(change))}"):
        dp.run(request)


def test_every_model_is_planned_without_noise_and_with_that_of_servers_and_of_devices() -> None:
    found = list(plans(models=["mf", "fm"], cohorts=[100, 500], budgets=[1.0], unit=USER, delta=1e-5, rounds=None))
    assert len(found) == len(set(found)) == 2 * 2 * 3
    assert {(one.model, one.where) for one in found if one.budget} == {
        (model, where) for model in ("mf", "fm") for where in (CENTRAL, LOCAL)
    }
