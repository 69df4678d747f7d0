"""`make memory`: peak memory of two real servers and seconds of a round's stages, compared with `secemb plan`."""

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
_AT_SERVER_1 = ("add", "share", "send_share", "step")  # from the moment that server 0 asks for its share
STAGES = {
    "prepare": "tag the table",
    "answer": "answer the sessions, of one core",
    "add": "add the sessions and store the share",
    "open": "the same at server 1, send its share, optimise",
    "publish": "send the model and publish it",
}
_CAPACITY = 500


class MemoryRun(TypedDict):
    """One catalogue: bytes by server, and seconds of the stages of a round."""

    items: int
    measured_bytes: list[int]
    planned_bytes: list[int]
    measured_seconds: dict[str, float]  # by stage of a round
    planned_seconds: dict[str, float]


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
    """Return the relative error of the plan for each server's peak."""
    pairs = zip(one["planned_bytes"], one["measured_bytes"], strict=True)
    return [planned / measured - 1 for planned, measured in pairs]


def _measure(items: int) -> MemoryRun:
    catalogue = PaperCatalogue(f"{items:,} items", items, min(_CAPACITY, items // 4))
    with tempfile.TemporaryDirectory(prefix="secemb-memory-") as folder:
        pair = Pair(Path(folder), task_for(catalogue, cohort=DEVICES))
        with pair.running():
            asyncio.run(run_fleet(pair, devices=DEVICES, rounds=ROUNDS))
            measured = [server.memory_bytes() for server in pair.servers]
            seconds = pair.servers[0].stages()
            kernel = pair.servers[0].usage().kernel_seconds
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
            link=10_000,  # both servers are on this machine
        ),
        seconds=0.5,
    )
    return {
        "items": items,
        "measured_bytes": measured,
        "planned_bytes": [planned["memory_bytes_server0"], planned["memory_bytes_server1"]],
        "measured_seconds": {
            "prepare": kernel["prepare"] / ROUNDS,
            "answer": kernel["answer"] / ROUNDS,
            "add": seconds["sealed"],
            "open": seconds["shared"],
            "publish": seconds["reconstructed"],
        },
        "planned_seconds": {
            "prepare": planned["seconds_to_prepare"],
            "answer": planned["seconds_to_answer"],
            "add": planned["seconds_to_add"] + planned["seconds_to_share"],
            "open": sum(planned[f"seconds_to_{name}"] for name in _AT_SERVER_1),  # type: ignore[literal-required]
            "publish": planned["seconds_to_send_model"] + planned["seconds_to_publish"],
        },
    }


def show(console: Console, found: list[MemoryRun]) -> None:
    """Print measured and planned values."""
    memory = Table("items", "server", title="Peak memory of real servers, compared with the plan", title_justify="left")
    stages = Table(
        "items", "stage of a round", title="Seconds of its stages, compared with the plan", title_justify="left"
    )
    for table, unit in ((memory, "MB"), (stages, "s")):
        for name in (f"measured {unit}", f"planned {unit}", "off by"):
            table.add_column(name, justify="right")
    for one in found:
        for role, off in enumerate(errors(one)):
            measured, planned = (f"{one[name][role] / 1e6:,.0f}" for name in ("measured_bytes", "planned_bytes"))
            memory.add_row("" if role else f"{one['items']:,}", str(role), measured, planned, f"{off:+.0%}")
        for name, seconds in one["measured_seconds"].items():
            expected = one["planned_seconds"][name]
            row = (STAGES[name], f"{seconds:.3f}", f"{expected:.3f}", f"{expected / seconds - 1:+.0%}")
            stages.add_row("" if name != next(iter(STAGES)) else f"{one['items']:,}", *row)
    console.print(memory)
    console.print(stages)
