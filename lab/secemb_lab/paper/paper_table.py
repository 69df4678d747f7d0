"""A table of the paper compared with ours: cells with a verdict, and the registry of functions that measure tables."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import partial
from importlib import import_module
from pathlib import Path
from time import perf_counter
from typing import Literal

Value = float | str | None
Progress = Callable[[float, str], None]  # the finished share of the table, and the next step
CLOSE = 0.05  # relative difference from the paper's figure that still counts as agreement

# Importing them fills the registry; this is also the order of the report.
MODULES: tuple[str, ...] = (
    "secemb_lab.paper.protocols.communication",
    "secemb_lab.paper.protocols.computation",
    "secemb_lab.paper.compression.utility",
    "secemb_lab.paper.compression.sequence_table",
    "secemb_lab.paper.protocols.sparse",
    "secemb_lab.paper.protocols.breakpoints",
    "secemb_lab.paper.protocols.server_time",
    "secemb_lab.paper.protocols.protocol_marks",
    "secemb_lab.paper.protocols.growth",
    "secemb_lab.paper.statistics.parameters",
    "secemb_lab.paper.statistics.rated_items",
    "secemb_lab.paper.statistics.held_numbers",
    "secemb_lab.paper.statistics.noise_cost",
)


class Verdict(StrEnum):
    """The result of comparing a cell with the paper's."""

    BETTER = "better"
    AGREES = "agrees within 5 %"
    DIFFERS = "differs"
    NO_DATA = "no data here"
    OURS_ALONE = "not in the paper"


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """One figure, ours and the paper's."""

    row: str
    column: str
    ours: Value  # None: this machine does not have the data
    paper: Value = None  # None: the paper has no such figure
    unit: str = ""
    better: Literal["", "less", "more"] = ""  # which is better; for a baseline neither is
    spread: float | None = None  # standard deviation of ours over the seeds
    note: str = ""  # one sentence: the reason for a difference or missing data

    @property
    def ratio(self) -> float | None:
        """Return ours divided by the paper's."""
        if not isinstance(self.ours, float | int) or not isinstance(self.paper, float | int) or self.paper == 0:
            return None
        return self.ours / self.paper

    @property
    def verdict(self) -> Verdict:
        """Return how ours compares."""
        if self.ours is None:
            return Verdict.NO_DATA
        if self.paper is None:
            return Verdict.OURS_ALONE
        if self.ratio is None:
            return Verdict.AGREES if self.ours == self.paper else Verdict.DIFFERS
        if abs(self.ratio - 1) <= CLOSE:
            return Verdict.AGREES
        good = {"less": self.ratio < 1, "more": self.ratio > 1}.get(self.better, False)
        return Verdict.BETTER if good else Verdict.DIFFERS

    @property
    def unexplained(self) -> bool:
        """Tell whether the cell differs, or is missing, without an explanation."""
        said = self.note.endswith(".") and len(self.note.split()) > 3
        return self.verdict in (Verdict.DIFFERS, Verdict.NO_DATA) and not said


@dataclass(frozen=True, slots=True, kw_only=True)
class Plot:
    """Lines of a figure, drawn when the page is written."""

    title: str
    across: str
    lines: Mapping[str, Sequence[tuple[float, float]]]
    doubling: bool = False  # a logarithmic x axis


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """A table or figure of the paper with our figures."""

    name: str
    title: str
    caption: str  # what was measured, and how
    cells: Sequence[Cell]
    plots: Sequence[Plot] = ()
    seconds: float = 0.0  # duration

    @property
    def rows(self) -> list[str]:
        """Return the names of the rows in order."""
        return list(dict.fromkeys(one.row for one in self.cells))

    @property
    def columns(self) -> list[str]:
        """Return the names of the columns in order."""
        return list(dict.fromkeys(one.column for one in self.cells))

    def cell(self, row: str, column: str) -> Cell | None:
        """Return one cell, if there is one."""
        return next((one for one in self.cells if (one.row, one.column) == (row, column)), None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """The settings of a measurement."""

    quick: bool = False  # the minimum that shows that it runs
    data: Path = Path("build/data")  # a folder with the sets
    seeds: int = 4  # runs of each case that has spread
    folder: Path = Path("build/paper")  # where a table may store data to resume after an interruption


@dataclass(frozen=True, slots=True)
class Measurement:
    """The way to measure one table."""

    name: str
    title: str
    night_seconds: float  # of a full run on two cores, to estimate the remaining time
    make: Callable[[Settings, Progress], Table]
    module: str  # that registered it

    def run(self, settings: Settings, progress: Progress) -> Table:
        """Measure the table and its duration."""
        begin = perf_counter()
        made = self.make(settings, progress)
        return replace(made, seconds=perf_counter() - begin)


@dataclass(frozen=True, slots=True, kw_only=True)
class Body:
    """The return value of a table's function: everything but the name and the time."""

    caption: str
    cells: Sequence[Cell]
    plots: Sequence[Plot] = ()


TABLES: dict[str, Measurement] = {}
_Make = Callable[[Settings, Progress], Body]


def table(name: str, *, title: str, night_seconds: float) -> Callable[[_Make], _Make]:
    """Register the decorated function as the measurement of a table."""

    def register(make: _Make) -> _Make:
        if name in TABLES:
            raise ValueError(f"there are two tables {name}")

        def whole(settings: Settings, progress: Progress) -> Table:
            body = make(settings, progress)
            return Table(name=name, title=title, caption=body.caption, cells=body.cells, plots=body.plots)

        module = (make.func if isinstance(make, partial) else make).__module__
        TABLES[name] = Measurement(name, title, night_seconds, whole, module)
        return make

    return register


def all_tables() -> dict[str, Measurement]:
    """Return every registered table by name, in the order of the report."""
    for module in MODULES:
        import_module(module)
    places = {module: place for place, module in enumerate(MODULES)}  # regardless of the import order
    return dict(sorted(TABLES.items(), key=lambda item: places.get(item[1].module, len(places))))


def unexplained(tables: Iterable[Table]) -> list[str]:
    """Return the cells that differ without an explanation."""
    return [f"{one.name}: {cell.row}, {cell.column}" for one in tables for cell in one.cells if cell.unexplained]
