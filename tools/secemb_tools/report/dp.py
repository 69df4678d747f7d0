"""What privacy costs in accuracy: models over ε, with noise of the two servers and with noise of the devices."""

import json
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import typer
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from secemb_shared.messages.privacy import LARGEST_EPSILON, RECORD, USER
from secemb_tools.charts import line_chart
from secemb_tools.datasets import DatasetError, RatingSet, read_movielens, split
from secemb_tools.operate.answer import show_json
from secemb_tools.report.dp_runs import Outcome, Plan, carry_out, plans
from secemb_tools.simulation.control import bias_only_rmse
from secemb_tools.simulation.noisy import CENTRAL, LOCAL

# What the accountant and the ring of a simulated task have room for.
_SMALLEST_DELTA, _SMALLEST_EPSILON, _LARGEST_COHORT = 1e-10, 0.01, 10_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """What to measure."""

    path: Path
    models: str  # names, separated by commas
    cohorts: str  # numbers, separated by commas
    budgets: str  # values of ε, separated by commas
    unit: str
    delta: float
    rounds: int | None
    seed: int
    out: Path
    device_by_device: bool = False  # local noise as devices would draw it, instead of a round's at once
    as_json: bool = False


def run(request: Request) -> int:
    """Train every plan, print the table, write JSON and curves."""
    console = Console(stderr=request.as_json)
    wanted = _plans(request)
    ratings = _read(request.path)
    data = split(ratings, seed=request.seed)
    control = bias_only_rmse(data)
    console.print(f"{ratings.name}, unit {request.unit}, δ {request.delta:g}: {len(wanted)} runs")
    found: list[Outcome] = []
    for number, plan in enumerate(wanted, 1):
        with console.status(f"{number} of {len(wanted)}: {_describe(plan)}"):
            found.append(carry_out(plan, data, seed=request.seed, device_by_device=request.device_by_device))
        console.print(f"{number} of {len(wanted)}: {_describe(plan)}: RMSE {found[-1].rmse:.4f}")
        _write(request, ratings, control, found)  # after each: a long report that is cut short has something to show
    if request.as_json:
        show_json(_document(request, ratings, control, found))
    else:
        console.print(table(found, control))
    console.print(f"figures in {request.out}, curves beside it")
    return 0


def table(found: Sequence[Outcome], control: float) -> Table:
    """Return the figures for people to read: a line for each model, cohort and kind of noise, a column for each ε."""
    budgets = sorted({one.plan.budget for one in found if one.plan.budget is not None})
    names = ("model", "cohort", "noise", "none", *(f"ε {budget:g}" for budget in budgets))
    result = Table(*names, box=SIMPLE_HEAD, show_edge=False, padding=(0, 1))
    for key in dict.fromkeys((one.plan.model, one.plan.cohort, one.plan.where) for one in found):
        own = {one.plan.budget: one for one in found if (one.plan.model, one.plan.cohort, one.plan.where) == key}
        cells = [f"{own[budget].rmse:.4f}" if budget in own else "" for budget in (None, *budgets)]
        result.add_row(key[0], str(key[1]), key[2], *cells)
    result.caption = f"RMSE on the test ratings; the bias-only model, without noise, has {control:.4f}"
    return result


def curves(found: Sequence[Outcome]) -> dict[str, str]:
    """Return pictures by name: for each cohort all models, and for each of them central beside local noise."""
    cohorts = list(dict.fromkeys(one.plan.cohort for one in found))
    pictures = {}
    for cohort in cohorts:
        here = [one for one in found if one.plan.cohort == cohort and one.plan.budget is not None]
        models = dict.fromkeys(one.plan.model for one in here)
        central = {model: _points(here, model, CENTRAL) for model in models}
        pictures[f"models-{cohort}"] = line_chart(
            central, title=f"RMSE over ε, noise of the servers, cohort {cohort}", across="ε"
        )
        for model in models:
            pictures[f"local-{model}-{cohort}"] = line_chart(
                {f"{model}, {where}": _points(here, model, where) for where in (CENTRAL, LOCAL)},
                title=f"RMSE over ε, noise of the servers or of the devices, cohort {cohort}",
                across="ε",
            )
    return pictures


def _points(found: Sequence[Outcome], model: str, where: str) -> list[tuple[float, float]]:
    return [(one.plan.budget or 0.0, one.rmse) for one in found if (one.plan.model, one.plan.where) == (model, where)]


def _plans(request: Request) -> list[Plan]:
    models = [name.strip() for name in request.models.split(",")]
    if request.unit not in (USER, RECORD):
        raise typer.BadParameter("--unit must be user or record")
    if request.unit == RECORD and "deepfm" in models:
        raise typer.BadParameter("record by record deepfm is too slow to be simulated: --models mf,ncf,fm")
    if unknown := set(models) - {"mf", "ncf", "fm", "deepfm"}:
        raise typer.BadParameter(f"no model {min(unknown)!r}; there are mf, ncf, fm and deepfm")
    if not _SMALLEST_DELTA <= request.delta < 1:
        raise typer.BadParameter(f"--delta must be {_SMALLEST_DELTA:g} or more, and below 1")
    return list(
        plans(
            models=models,
            cohorts=[_whole(text) for text in request.cohorts.split(",")],
            budgets=[_epsilon(text) for text in request.budgets.split(",")],
            unit=request.unit,
            delta=request.delta,
            rounds=request.rounds,
        )
    )


def _whole(text: str) -> int:
    with suppress(ValueError):
        if 2 <= (found := int(text)) <= _LARGEST_COHORT:
            return found
    raise typer.BadParameter(f"--cohorts are whole numbers, 2 to {_LARGEST_COHORT:,}, separated by commas: {text!r}")


def _epsilon(text: str) -> float:
    with suppress(ValueError):
        if _SMALLEST_EPSILON <= (found := float(text)) <= LARGEST_EPSILON:
            return found
    between = f"{_SMALLEST_EPSILON:g} to {LARGEST_EPSILON:,}"
    raise typer.BadParameter(f"--budgets are values of ε, {between}, separated by commas: {text!r}")


def _read(path: Path) -> RatingSet:
    try:
        return read_movielens(path)
    except DatasetError as error:
        raise typer.BadParameter(str(error)) from error


def _describe(plan: Plan) -> str:
    cost = "no noise" if plan.budget is None else f"{plan.where} noise, ε {plan.budget:g}"
    return f"{plan.model}, {plan.rounds} rounds of about {plan.cohort}, {cost}"


def _document(request: Request, ratings: RatingSet, control: float, found: Sequence[Outcome]) -> dict[str, Any]:
    return {
        "ratings": ratings.name,
        "seed": request.seed,
        "bias_only_rmse": control,
        "runs": [asdict(one) for one in found],
    }


def _write(request: Request, ratings: RatingSet, control: float, found: Sequence[Outcome]) -> None:
    request.out.parent.mkdir(parents=True, exist_ok=True)
    document = _document(request, ratings, control, found)
    request.out.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
    for name, picture in curves(found).items():
        request.out.with_name(f"{request.out.stem}-{name}.svg").write_text(picture, encoding="utf-8")
