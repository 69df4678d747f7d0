"""`make pacing`: simulated fleets as a table, figures and plots, and their goals."""

from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import asdict
from multiprocessing import get_context
from pathlib import Path
from time import perf_counter
from typing import Any

from rich.table import Table

from secemb_lab.pacing.goals import goals, title
from secemb_lab.pacing.scenarios import Figures, Scenario, all_scenarios, quick_scenarios, simulate
from secemb_server0.pace import JOINS_PER_SECOND
from secemb_tools.charts import line_chart
from secemb_tools.errors import OperationError
from secemb_tools.output import console_for, note, write_figures

_COLUMNS = (
    "rounds",
    "published",
    "round s",
    "joins/s",
    "p99",
    "peak",
    "told p99",
    "peak",
    "uncounted",
    "took part",
    "in turns",
    "unevenness",
)


def run(output: Path, *, quick: bool, devices: Sequence[int], processes: int, as_json: bool = False) -> bool:
    """Simulate all fleets, print a table, write figures and plots; return whether all goals were reached."""
    console = console_for(as_json=as_json)
    found = _simulated(_chosen(devices, quick=quick), processes)
    wanted = goals(found)
    console.print(table(found))
    for one in wanted:
        if not one.reached:
            console.print(f"missed: {one.name}: {one.measured:.4g}, goal {one.goal:.4g}")
    figures: dict[str, Any] = {
        "quick": quick,
        "joins_per_second": JOINS_PER_SECOND,
        "runs": [asdict(one) for one in found],
        "goals": [asdict(one) for one in wanted],
    }
    write_figures(console, output, figures, as_json=as_json)
    for name, picture in plots(found):
        output.with_name(f"{output.stem}-{name}.svg").write_text(picture, encoding="utf-8")
    console.print(f"{sum(one.reached for one in wanted)} of {len(wanted)} goals reached")
    return all(one.reached for one in wanted)


def _chosen(devices: Sequence[int], *, quick: bool) -> list[Scenario]:
    scenarios = quick_scenarios() if quick else all_scenarios()
    chosen = [one for one in scenarios if not devices or one.devices in devices]
    if not chosen:
        sizes = ", ".join(str(one) for one in sorted({one.devices for one in scenarios}))
        raise OperationError(f"--devices: no fleet has this size; choose one of {sizes}")
    return chosen


def _simulated(scenarios: Sequence[Scenario], processes: int) -> list[Figures]:
    start, done = perf_counter(), {}
    with ProcessPoolExecutor(processes, mp_context=get_context("spawn")) as pool:
        running = {pool.submit(simulate, one): place for place, one in enumerate(scenarios)}
        for future in as_completed(running):
            one = done[running[future]] = future.result()
            note(f"{len(done)} of {len(scenarios)}, {perf_counter() - start:.0f} s: {title(one)}")
    return [done[place] for place in sorted(done)]


def table(found: Sequence[Figures]) -> Table:
    """Return a row for each run."""
    shown = Table("fleet", title=f"Fleets in virtual time; target: {JOINS_PER_SECOND:g} joins/s", title_justify="left")
    for name in _COLUMNS:
        shown.add_column(name, justify="right")
    for one in found:
        shown.add_row(
            title(one),
            str(one.rounds),
            f"{one.share:.0%}",
            f"{one.round_seconds:.0f}",
            f"{one.joins_mean:.1f}",
            f"{one.joins_p99:.0f}",
            str(one.joins_peak),
            f"{one.told_p99:.0f}",
            str(one.told_peak),
            f"{one.in_vain:.1%}",
            f"{one.contributed:.1%}",
            f"{one.turns:.1%}",
            f"{one.dispersion:.2f}",
        )
    return shown


def plots(found: Sequence[Figures]) -> Iterator[tuple[str, str]]:
    """Yield a picture of the joins per second for each kind of event, with its name."""
    for name in dict.fromkeys(one.scenario.name for one in found):
        own = [one for one in found if one.scenario.name == name]
        lines = {f"{one.scenario.devices:,} devices": one.curve for one in reversed(own)}  # of a deadline, the first
        yield (
            "".join(sign if sign.isalnum() else "-" for sign in name),
            line_chart(lines, title=f"{name}: joins a second", across="minutes", level=("wanted", JOINS_PER_SECOND)),
        )
