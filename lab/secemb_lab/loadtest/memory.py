"""`make memory`: the peak memory of two real servers while rounds run, beside what `secemb plan` says."""

import asyncio
import tempfile
from pathlib import Path

from rich.console import Console
from rich.table import Table
from typing_extensions import TypedDict

from secemb_lab.bench.report import describe_machine
from secemb_lab.loadtest.fleet import run_fleet
from secemb_lab.loadtest.loadtest import task_for
from secemb_tools.catalogues import WIDTH, PaperCatalogue
from secemb_tools.local import Pair
from secemb_tools.output import console_for, write_figures
from secemb_tools.plan import PlanInput, cost

DEVICES, ROUNDS = 4, 3  # a server is at its peak once it has prepared two rounds and stored the optimiser's state twice
TOLERANCE = 0.25
_CAPACITY = 500


class MemoryRun(TypedDict):
    """One catalogue; bytes and seconds by server, or of the whole pair."""

    items: int
    measured_bytes: list[int]
    planned_bytes: list[int]
    measured_seal_to_publish: float
    planned_seal_to_publish: float


def run(output: Path, items: list[int], *, as_json: bool = False) -> bool:
    """Measure catalogues of these sizes, print a table and write the figures; return whether the plan was right."""
    console = console_for(as_json=as_json)
    found = []
    for count in items:
        with console.status(f"{count:,} items: {ROUNDS} rounds of {DEVICES} devices against two servers"):
            found.append(_measure(count))
    show(console, found)
    write_figures(console, output, {"machine": describe_machine(), "runs": found}, as_json=as_json)
    return all(abs(error) <= TOLERANCE for one in found for error in errors(one))


def errors(one: MemoryRun) -> list[float]:
    """Return by which share of the measured peak the plan is off, for each server."""
    pairs = zip(one["planned_bytes"], one["measured_bytes"], strict=True)
    return [planned / measured - 1 for planned, measured in pairs]


def _measure(items: int) -> MemoryRun:
    catalogue = PaperCatalogue(f"{items:,} items", items, min(_CAPACITY, items // 4))
    with tempfile.TemporaryDirectory(prefix="secemb-memory-") as folder:
        pair = Pair(Path(folder), task_for(catalogue, cohort=DEVICES))
        with pair.running():
            asyncio.run(run_fleet(pair, devices=DEVICES, rounds=ROUNDS))
            measured = [server.usage().memory_bytes for server in pair.servers]
            ending = min(seconds for seconds, _ in pair.servers[0].endings())
    planned = cost(
        PlanInput(
            items=items,
            capacity=catalogue.capacity,
            width=WIDTH,
            dense_size=0,
            cohort=DEVICES,
            fleet=DEVICES,
            placement_loss=1e-6,
            ring_bits=32,
            link=10_000,  # both servers are here
        ),
        seconds=0.5,
    )
    return {
        "items": items,
        "measured_bytes": measured,
        "planned_bytes": [planned["memory_bytes_server0"], planned["memory_bytes_server1"]],
        "measured_seal_to_publish": ending,
        "planned_seal_to_publish": planned["seconds_from_seal_to_publish"],
    }


def show(console: Console, found: list[MemoryRun]) -> None:
    """Print what was measured beside what was planned."""
    table = Table("items", "server", title="Peak memory of real servers, and the plan's", title_justify="left")
    for name in ("measured MB", "planned MB", "off by", "seal to publish s", "planned s"):
        table.add_column(name, justify="right")
    for one in found:
        for role, off in enumerate(errors(one)):
            table.add_row(
                "" if role else f"{one['items']:,}",
                str(role),
                f"{one['measured_bytes'][role] / 1e6:,.0f}",
                f"{one['planned_bytes'][role] / 1e6:,.0f}",
                f"{off:+.0%}",
                "" if role else f"{one['measured_seal_to_publish']:.1f}",
                "" if role else f"{one['planned_seal_to_publish']:.1f}",
                end_section=role == 1,
            )
    console.print(table)
