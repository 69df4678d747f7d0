"""Runs that are kept in a directory: which there are, and how two of them differ."""

from pathlib import Path
from typing import Any

from secemb_tools.errors import RunError
from secemb_tools.simulation.run import FILE, Run

COLUMNS = ("name", "model", "devices", "rounds", "finished", "rmse", "plain_rmse", "seconds")


def list_runs(folder: Path) -> tuple[list[dict[str, object]], list[str]]:
    """Return the runs that are kept, by name; and of each that cannot be read, which it is and what to do about it."""
    rows, damaged = [], []
    for path in sorted(folder.glob(f"*/{FILE}")):
        try:
            rows.append(_row(Run.load(path.parent)))
        except RunError as error:
            damaged.append(str(error))
    return rows, damaged


def compare_runs(first: Run, second: Run) -> dict[str, Any]:
    """Return where two runs differ: in what was asked for, and round by round."""
    rows = []
    for number in range(max(len(first.rows), len(second.rows))):
        pair = [run.rows[number] if number < len(run.rows) else None for run in (first, second)]
        rows.append(
            {
                "round": number,
                "first_rmse": None if pair[0] is None else pair[0].rmse,
                "second_rmse": None if pair[1] is None else pair[1].rmse,
                "same": pair[0] == pair[1],
            }
        )
    mine, other = first.scenario.as_json(), second.scenario.as_json()
    return {
        "first": first.name,
        "second": second.name,
        "same": all(row["same"] for row in rows),
        "differences": {name: [mine[name], other[name]] for name in mine if mine[name] != other[name]},
        "rounds": rows,
    }


def _row(run: Run) -> dict[str, object]:
    known = run.as_json()
    return {
        "name": run.name,
        "model": run.scenario.model,
        "devices": run.scenario.devices,
        "rounds": len(run.rows),
        "finished": run.finished,
        "rmse": run.rmse,
        "plain_rmse": known["plain_rmse"],
        "seconds": known["seconds"],
    }
