"""Many runs at once: every combination of some settings, on all cores, with statistics over seeds."""

from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from itertools import product
from multiprocessing import get_context
from os import cpu_count
from statistics import fmean, stdev
from typing import TYPE_CHECKING, Any

from secemb_tools.errors import ScenarioError
from secemb_tools.simulation.run import Run
from secemb_tools.simulation.simulate import simulate

if TYPE_CHECKING:
    from polars import DataFrame

SEED = "seed"


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """The results of several seeds with the same settings."""

    settings: Mapping[str, Any]  # those that vary in the grid, except the seed
    seeds: tuple[int, ...]
    figures: Mapping[str, float]  # of the newest evaluations, or over all held-out data: means over the seeds
    spread: Mapping[str, float]  # their standard deviations; None for one seed

    def __str__(self) -> str:
        """Return the figures as mean ± standard deviation."""
        names = ", ".join(f"{name}={value}" for name, value in self.settings.items())
        found = ", ".join(
            f"{name} {value:.4f}" + (f" ± {self.spread[name]:.4f}" if name in self.spread else "")
            for name, value in self.figures.items()
            if name not in ("k", "strangers") and not name.endswith(("_low", "_high"))
        )
        return f"{names}: {found}" if names else found


@dataclass(frozen=True, slots=True, kw_only=True)
class Grid:
    """Runs with the settings that vary."""

    over: Mapping[str, Sequence[Any]]
    runs: Sequence[Run] = field(repr=False)  # in the order of the combinations, the last setting changes fastest

    def __iter__(self) -> Iterator[tuple[dict[str, Any], Run]]:
        """Yield each combination with its run."""
        return zip(combinations(self.over), self.runs, strict=True)

    def outcomes(self) -> list[Outcome]:
        """Return one outcome for each combination of settings other than the seed."""
        groups: dict[tuple[Any, ...], list[Run]] = {}
        names = [name for name in self.over if name != SEED]
        for settings, run in self:
            groups.setdefault(tuple(settings[name] for name in names), []).append(run)
        return [_outcome(dict(zip(names, values, strict=True)), runs) for values, runs in groups.items()]

    def to_frame(self) -> "DataFrame":
        """Return a polars DataFrame with a line for each run: its settings in the grid and its figures."""
        from polars import DataFrame  # imported here because it takes a third of a second

        lines = [
            {**settings, "rounds": run.trained, "seconds": round(run.seconds, 3), **fleet_figures(run)}
            for settings, run in self
        ]
        return DataFrame(lines, infer_schema_length=None)


def grid(over: Mapping[str, Sequence[Any]], *, processes: int | None = None, **settings: Any) -> Grid:
    """Run every combination of settings, such as `grid({"dimension": [8, 16], "seed": [1, 2, 3]}, data="ml-100k")`.

    Each run has its own process, as many at a time as there are cores. A script that calls this must guard its
    start with `if __name__ == "__main__":`. With `runs` each run is saved, and an interrupted grid is resumed.
    """
    if not over or any(isinstance(values, str) or not len(values) for values in over.values()):
        raise ScenarioError("a grid needs at least one setting with a list of values")
    if twice := over.keys() & settings.keys():
        raise ScenarioError(f"{min(twice)!r} is both fixed and a setting of the grid; give it once")
    wanted = [settings | one for one in combinations(over)]
    count = min(processes or cpu_count() or 1, len(wanted))
    if count == 1:
        return Grid(over=over, runs=[_run(one) for one in wanted])
    with ProcessPoolExecutor(count, mp_context=get_context("spawn")) as pool:
        return Grid(over=over, runs=list(pool.map(_run, wanted)))


def combinations(over: Mapping[str, Sequence[Any]]) -> list[dict[str, Any]]:
    """Return every combination of values."""
    return [dict(zip(over, values, strict=True)) for values in product(*over.values())]


def fleet_figures(run: Run) -> dict[str, float]:
    """Return the figures of the newest evaluations together; if noise leaves none, those over all held-out data."""
    if run.window:
        return {name: float(value) for name, value in run.window.items() if isinstance(value, int | float)}
    model, *simpler = (run.final or {"model": {}}).items()
    found = {name: value["value"] for name, value in model[1].items() if isinstance(value, dict)}
    names = {"mean": "mean", "biases": "biases", "popularity": "popular"}
    for name, figures in simpler:
        found |= {f"{names[name]}_{one}": figures[one]["value"] for one in ("rmse", "ndcg") if one in figures}
    return found


def _run(settings: dict[str, Any]) -> Run:
    run = simulate(**settings)
    run.engines = []  # they stay on disk: a saved run can be loaded with its model
    return run


def _outcome(settings: dict[str, Any], runs: Sequence[Run]) -> Outcome:
    found = [fleet_figures(run) for run in runs]
    shared = [name for name in found[0] if all(name in one for one in found)]
    return Outcome(
        settings=settings,
        seeds=tuple(run.scenario.seed for run in runs),
        figures={name: fmean(one[name] for one in found) for name in shared},
        spread={name: stdev(one[name] for one in found) for name in shared if len(found) > 1},
    )
