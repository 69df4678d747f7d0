"""The files of the report on differential privacy: figures for resuming, a table for a page, and curves."""

import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from secemb_lab.report.dp_runs import Outcome, Plan
from secemb_lab.report.published import REPORTED
from secemb_sdk.models import registry
from secemb_tools.charts import line_chart
from secemb_tools.errors import OperationError
from secemb_tools.simulation.engine import CENTRAL, LOCAL

WORDS = {CENTRAL: "servers", LOCAL: "devices"}  # whose noise it is
_KNOWN = "spent_known"


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """The settings common to all figures of a file."""

    ratings: str
    seed: int
    unit: str


def document(source: Source, found: Sequence[Outcome], *, control: float) -> dict[str, Any]:
    """Return all figures as JSON types."""
    runs = [asdict(one) | {_KNOWN: one.spent_known} for one in found]
    return {"ratings": source.ratings, "seed": source.seed, "bias_only_rmse": control, "runs": runs}


def write(out: Path, source: Source, found: Sequence[Outcome], *, control: float) -> None:
    """Write the figures, and beside them the table and the curves."""
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_text(json.dumps(document(source, found, control=control), indent=1) + "\n", encoding="utf-8")
    out.with_suffix(".md").write_text(markdown(found), encoding="utf-8")
    for name, picture in curves(found, control=control).items():
        out.with_name(f"{out.stem}-{name}.svg").write_text(picture, encoding="utf-8")


def read(out: Path, source: Source) -> list[Outcome]:
    """Return earlier measurements; those from another source are refused, as they belong in another table."""
    if not out.exists():
        return []
    try:
        known = json.loads(out.read_text(encoding="utf-8"))
        found = [_outcome(one) for one in known["runs"]]
        others = {Source(ratings=known["ratings"], seed=known["seed"], unit=one.plan.unit) for one in found} - {source}
    except (ValueError, KeyError, TypeError) as error:
        raise OperationError(f"--resume: {out} contains no figures of this report; choose another --out") from error
    if others:
        raise OperationError(
            f"--resume: {out} has different ratings, or a different seed or unit; choose another --out"
        )
    return found


def _outcome(run: dict[str, Any]) -> Outcome:
    measured = {name: value for name, value in run.items() if name != _KNOWN}
    return Outcome(**(measured | {"plan": Plan(**run["plan"])}))


def lines(found: Sequence[Outcome]) -> Iterator[list[str]]:
    """Yield the table: its heads, and a line for each model, cohort, number of rounds and kind of noise."""
    budgets = sorted({one.plan.budget for one in found if one.plan.budget is not None})
    yield ["model", "cohort", "rounds", "noise", "none", *(f"ε = {budget:g}" for budget in budgets)]
    for key in sorted({_row(one.plan) for one in found}):
        own = {one.plan.budget: f"{one.rmse:.3f}" for one in found if _row(one.plan) == key}
        cohort, model, rounds, where = key
        names = [_name(model), str(cohort), str(rounds), WORDS[where]]
        yield [*names, *(own.get(budget, "") for budget in (None, *budgets))]


def markdown(found: Sequence[Outcome]) -> str:
    """Return the table for a page."""
    heads, *rest = lines(found)
    rows = [heads, ["---"] * len(heads), *rest]
    return "".join(f"| {' | '.join(row)} |\n" for row in rows)


def curves(found: Sequence[Outcome], *, control: float) -> dict[str, str]:
    """Return a picture for each cohort: each model with noise of the servers and with noise of the devices."""
    return {
        str(cohort): line_chart(
            _series([one for one in found if one.plan.cohort == cohort and one.plan.budget is not None]),
            title=f"RMSE over ε, cohort {cohort}: noise of the servers (dotted: of the devices)",
            across="ε",
            pairs=True,
            doubling=True,
            level=("biases alone, without noise", control),
        )
        for cohort in sorted({one.plan.cohort for one in found})
    }


def _series(found: Sequence[Outcome]) -> dict[str, list[tuple[float, float]]]:
    """Return the points of each line: a model with its number of rounds, and where the noise comes from."""
    series = {}
    for cohort, model, rounds in sorted({_row(one.plan)[:3] for one in found}):
        for where, suffix in ((CENTRAL, ""), (LOCAL, f", {WORDS[LOCAL]}")):
            own = [one for one in found if _row(one.plan) == (cohort, model, rounds, where)]
            points = sorted((one.plan.budget or 0.0, one.rmse) for one in own)
            series[f"{_name(model)}, {rounds} rounds{suffix}"] = points
    return series


def _name(model: int) -> str:
    return registry.find(REPORTED[model]).title


def _row(plan: Plan) -> tuple[int, int, int, str]:
    return plan.cohort, REPORTED.index(plan.model), plan.rounds, plan.where
