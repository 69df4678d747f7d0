"""Runs: the table, the plot and the file of each, the list of those that are kept, and how two of them differ."""

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

from secemb_sdk.home.files import write_file
from secemb_shared.messages.spec import TRAIN
from secemb_tools.charts import line_chart
from secemb_tools.errors import RunError
from secemb_tools.simulation.engine import Row
from secemb_tools.simulation.scenario import Scenario

FORMAT = "secemb/1 run"
FILE = "run.json"
COLUMNS = ("name", "model", "devices", "rounds", "finished", "rmse", "plain_rmse", "seconds")


@dataclass(slots=True, kw_only=True)
class Run:
    """What a scenario came to: a row for each round, and the same rows of a plain run if that was asked for."""

    name: str
    scenario: Scenario
    way: str  # private, plain or http
    task_id: str
    rows: list[Row] = field(default_factory=list)
    plain: list[Row] | None = None
    seconds: float = 0.0  # of work; not part of the table

    @property
    def finished(self) -> bool:
        """Tell whether all rounds have been run, or training has stopped early."""
        return len(self.rows) >= self.scenario.all_rounds or self.stopped

    @property
    def trained(self) -> int:
        """Return how many rounds have trained."""
        return sum(row.kind == TRAIN for row in self.rows)

    @property
    def stopped(self) -> bool:
        """Tell whether the last evaluations were no better than one before: more rounds would not help."""
        marks = [mark for row in self.rows if (mark := row.mark) is not None]
        best, patience = marks.index(min(marks)) if marks else 0, self.scenario.patience
        return 0 < patience < len(marks) - best

    @property
    def rmse(self) -> float | None:
        """Return the last error that was measured."""
        return last_rmse(self.rows)

    @property
    def same_as_plain(self) -> bool | None:
        """Tell whether every row has the bits of the plain run's; nothing where there was none."""
        return None if self.plain is None else self.plain[: len(self.rows)] == self.rows

    def table(self) -> list[dict[str, Any]]:
        """Return a row for each round. On one machine the same scenario has the same table, whatever carried it.

        Another kind of processor may add floats up in another order: then the last bits differ.
        """
        return [row.as_json() for row in self.rows]

    def plot(self) -> str:
        """Return the error over the rounds as SVG."""
        series = {self.way: points_of(self.rows)}
        if self.plain is not None:
            series["plain"] = points_of(self.plain)
        return line_chart(series, title="RMSE on held-out ratings", across="round")

    def as_json(self) -> dict[str, Any]:
        """Return everything as plain data."""
        return {
            "format": FORMAT,
            "name": self.name,
            "scenario": self.scenario.as_json(),
            "way": self.way,
            "task_id": self.task_id,
            "finished": self.finished,
            "rmse": self.rmse,
            "plain_rmse": None if self.plain is None else last_rmse(self.plain),
            "same_as_plain": self.same_as_plain,
            "seconds": round(self.seconds, 3),
            "table": self.table(),
            "plain_table": None if self.plain is None else [row.as_json() for row in self.plain],
        }

    def save(self, folder: Path | str) -> Path:
        """Write run.json and plot.svg into a directory of the run's name, as a whole or not at all; return it."""
        path = Path(folder) / self.name
        path.mkdir(parents=True, exist_ok=True)
        write_file(path / "plot.svg", self.plot().encode())
        write_file(path / FILE, (json.dumps(self.as_json(), indent=1) + "\n").encode())
        return path

    @classmethod
    def load(cls, path: Path | str) -> Self:
        """Read what `save` has written."""
        try:
            found = json.loads((Path(path) / FILE).read_bytes())
            if found["format"] != FORMAT:
                raise ValueError
            plain = found["plain_table"]
            return cls(
                name=found["name"],
                scenario=Scenario.read(found["scenario"]),
                way=found["way"],
                task_id=found["task_id"],
                rows=[Row.read(row) for row in found["table"]],
                plain=None if plain is None else [Row.read(row) for row in plain],
                seconds=found["seconds"],
            )
        except FileNotFoundError:
            raise RunError(f"there is no run in {path}; `secemb run list` prints those that exist") from None
        except (ValueError, KeyError, TypeError):
            raise RunError(
                f"{path} holds no run that this version can read; remove it, or use the version that wrote it"
            ) from None


def points_of(rows: list[Row]) -> list[tuple[float, float]]:
    """Return where a run's errors are on a plot."""
    return [(float(row.round), row.rmse) for row in rows if row.rmse is not None]


def last_rmse(rows: list[Row]) -> float | None:
    """Return the last error in a table."""
    return next((row.rmse for row in reversed(rows) if row.rmse is not None), None)


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
