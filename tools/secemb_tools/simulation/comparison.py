"""Comparison of saved runs: their list, and the differences between two of them."""

from itertools import zip_longest
from pathlib import Path
from typing import Any

from secemb_tools.errors import RunError
from secemb_tools.simulation.engine import Row
from secemb_tools.simulation.rounds import PLAIN
from secemb_tools.simulation.run import FILE, Run

COLUMNS = (
    *("name", "model", "devices", "rounds", "ended", "held_out", "rmse", "biases", "ndcg", "popularity"),
    *("interval", "coverage", "seconds"),
)


def list_runs(folder: Path) -> tuple[list[dict[str, object]], list[str]]:
    """Return the saved runs, by name; and for each that cannot be read, its name and what to do about it."""
    rows, damaged = [], []
    for path in sorted(folder.glob(f"*/{FILE}")):
        try:
            rows.append(_row(Run.load(path.parent)))
        except RunError as error:
            damaged.append(str(error))
    return rows, damaged


def compare_runs(first: Run, second: Run) -> dict[str, Any]:
    """Return the differences between two runs: in their settings, and round by round."""
    mine, other = first.scenario.as_json(), second.scenario.as_json()
    return {
        "first": first.name,
        "second": second.name,
        "same": first.rows == second.rows,
        "differences": {name: [mine[name], other[name]] for name in mine if mine[name] != other[name]},
        "rounds": _compare_rows(first.rows, second.rows),
    }


def compare_with_plain(run: Run) -> dict[str, Any]:
    """Return the differences between a run and its plain run."""
    return {
        "first": run.name,
        "second": PLAIN,
        "same": run.same_as_plain,
        "differences": {},
        "rounds": _compare_rows(run.rows, run.plain or []),
    }


def _compare_rows(first: list[Row], second: list[Row]) -> list[dict[str, Any]]:
    return [
        {
            "round": number,
            "first_rmse": None if one is None else one.rmse,
            "second_rmse": None if other is None else other.rmse,
            "first_ndcg": None if one is None else one.ndcg,
            "second_ndcg": None if other is None else other.ndcg,
            "same": one == other,
        }
        for number, (one, other) in enumerate(zip_longest(first, second))
    ]


def _row(run: Run) -> dict[str, object]:
    """Return a run's line in the list: the figures over all held-out data, and those of the baselines."""

    def value(name: str, figure: str) -> float | None:
        found: float | None = (run.final or {}).get(name, {}).get(figure, {}).get("value")
        return found

    model = (run.final or {}).get("model", {})
    found = model.get("rmse") or model.get("ndcg") or {}

    return {
        "name": run.name,
        "model": run.scenario.model,
        "devices": run.scenario.devices,
        "rounds": run.trained,
        "ended": run.ended,
        "held_out": model.get("interactions"),
        "rmse": value("model", "rmse"),
        "biases": value("biases", "rmse"),
        "ndcg": value("model", "ndcg"),
        "popularity": value("popularity", "ndcg"),
        "interval": [found["low"], found["high"]] if found.get("low") is not None else None,
        "coverage": model.get("coverage"),
        "seconds": round(run.seconds, 3),
    }
