"""The cost of privacy in accuracy: models over ε, with noise of the two servers and with noise of the devices."""

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from secemb_lab.report import dp_file
from secemb_lab.report.dp_runs import Outcome, Plan, carry_out, plans
from secemb_lab.report.published import REPORTED
from secemb_shared.messages.privacy import LARGEST_EPSILON, RECORD, USER
from secemb_tools.datasets import read_ratings, split
from secemb_tools.errors import OperationError
from secemb_tools.output import show_json
from secemb_tools.simulation.baseline import bias_only_rmse
from secemb_tools.simulation.processes import Processes, count_for
from secemb_tools.simulation.recipes import default_cohort

_COHORTS = (100, 500)
# The limits of the accountant and the ring of a simulated task.
_SMALLEST_DELTA, _SMALLEST_EPSILON, _LARGEST_COHORT = 1e-10, 0.01, 10_000


@dataclass(frozen=True, slots=True, kw_only=True)
class DpOptions:
    """What to measure."""

    path: Path
    models: str  # names, separated by commas
    cohorts: str  # numbers, separated by commas; none: those of the published report that the set has people for
    budgets: str  # values of ε, separated by commas
    unit: str
    delta: float
    rounds: int | None
    seed: int
    out: Path
    device_by_device: bool = False  # local noise as devices would draw it, instead of a round's at once
    resume: bool = False  # resume from `out`
    as_json: bool = False


def run(options: DpOptions) -> int:
    """Train every plan, print the table, write figures, table and curves."""
    console = Console(stderr=options.as_json)
    cohorts = [_whole(text) for text in options.cohorts.split(",")] if options.cohorts else []
    wanted = _plans(options, cohorts or list(_COHORTS))
    ratings = read_ratings(options.path)
    if ratings.implicit:
        raise OperationError(f"{ratings.name} contains no ratings, which this report needs")
    if max(cohorts, default=0) > (people := ratings.person_count):
        raise OperationError(f"--cohorts has {max(cohorts):,}, but the set has {people:,} people; use fewer")
    wanted = [plan for plan in wanted if plan.cohort <= people] or _plans(options, [default_cohort(people)])
    source = dp_file.Source(ratings=ratings.label, seed=options.seed, unit=options.unit)
    found = dp_file.read(options.out, source) if options.resume else []
    missing = [plan for plan in wanted if plan not in {one.plan for one in found}]
    data = split(ratings, seed=options.seed)
    control = bias_only_rmse(data)
    console.print(f"{ratings.label}, unit {options.unit}, δ {options.delta:g}: {len(missing)} runs")
    with Processes(count_for(sum(plan.rounds * plan.cohort for plan in missing))) as processes:
        settings: dict[str, Any] = {
            "seed": options.seed,
            "device_by_device": options.device_by_device,
            "processes": processes,
        }
        for number, plan in enumerate(missing, 1):
            with console.status(f"{number} of {len(missing)}: {_describe(plan)}"):
                found.append(carry_out(plan, data, **settings))
            console.print(f"{number} of {len(missing)}: {_describe(plan)}: RMSE {found[-1].rmse:.4f}")
            # After each, so that an interrupted report has results, and can be resumed.
            dp_file.write(options.out, source, found, control=control)
    dp_file.write(options.out, source, found, control=control)
    if options.as_json:
        show_json(dp_file.document(source, found, control=control))
    else:
        console.print(table(found, control))
    console.print(f"figures written to {options.out}, table and curves next to it")
    return 0


def table(found: Sequence[Outcome], control: float) -> Table:
    """Return the figures for people to read: a line for each model, cohort and kind of noise, a column for each ε."""
    heads, *rest = dp_file.lines(found)
    result = Table(*heads, box=SIMPLE_HEAD, show_edge=False, padding=(0, 1))
    for row in rest:
        result.add_row(*row)
    result.caption = f"RMSE on the test ratings; the bias-only model, without noise, has {control:.4f}"
    return result


def _plans(options: DpOptions, cohorts: list[int]) -> list[Plan]:
    models = [name.strip() for name in options.models.split(",")]
    if options.unit not in (USER, RECORD):
        raise OperationError("--unit must be user or record")
    if options.unit == RECORD and "deepfm" in models:
        raise OperationError("deepfm is too slow to simulate with --unit record; use --models mf,ncf,fm")
    if unknown := set(models) - set(REPORTED):
        raise OperationError(f"unknown model {min(unknown)!r}; choose from {', '.join(REPORTED)}")
    if not _SMALLEST_DELTA <= options.delta < 1:
        raise OperationError(f"--delta must be {_SMALLEST_DELTA:g} or more, and below 1")
    return list(
        plans(
            models=models,
            cohorts=cohorts,
            budgets=[_epsilon(text) for text in options.budgets.split(",")],
            unit=options.unit,
            delta=options.delta,
            rounds=options.rounds,
        )
    )


def _whole(text: str) -> int:
    with suppress(ValueError):
        if 2 <= (found := int(text)) <= _LARGEST_COHORT:
            return found
    raise OperationError(
        f"--cohorts must be whole numbers from 2 to {_LARGEST_COHORT:,}, separated by commas: {text!r}"
    )


def _epsilon(text: str) -> float:
    with suppress(ValueError):
        if _SMALLEST_EPSILON <= (found := float(text)) <= LARGEST_EPSILON:
            return found
    between = f"{_SMALLEST_EPSILON:g} to {LARGEST_EPSILON:,}"
    raise OperationError(f"--budgets must be values of ε, {between}, separated by commas: {text!r}")


def _describe(plan: Plan) -> str:
    cost = "no noise" if plan.budget is None else f"{plan.where} noise, ε {plan.budget:g}"
    return f"{plan.model}, {plan.rounds} rounds of about {plan.cohort}, {cost}"
