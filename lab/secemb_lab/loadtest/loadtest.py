"""`make loadtest`: one of the paper's catalogues, two real servers, and rounds that wait for all devices."""

import asyncio
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from secemb_lab.bench.report import describe_machine
from secemb_lab.loadtest.bare import bare_request_ms
from secemb_lab.loadtest.fleet import run_fleet
from secemb_lab.loadtest.report import figure, show
from secemb_shared.messages import TaskSpec
from secemb_tools.catalogues import WIDTH, Catalogue
from secemb_tools.local import Pair
from secemb_tools.operate.tasks import TaskOptions, make_task
from secemb_tools.output import console_for, write_figures
from secemb_tools.transport import Transport


def task_for(catalogue: Catalogue, *, cohort: int) -> TaskSpec:
    """Return the task for both servers."""
    return make_task(
        TaskOptions(
            name=catalogue.name,
            items=catalogue.items,
            width=WIDTH,
            capacity=catalogue.capacity,
            clip=16,
            cohort=cohort,
            min_cohort=2,
            rounds=1000,
            upload_seconds=300,
        )
    )


def run(
    output: Path,
    chosen: list[Catalogue],
    *,
    devices: int,
    rounds: int,
    transports: Sequence[Transport],
    as_json: bool = False,
) -> list[dict[str, Any]]:
    """Measure every chosen catalogue, print a table and write the figures as JSON; with `as_json` print that too."""
    console = console_for(as_json=as_json)
    figures = []
    for catalogue in chosen:
        for transport in transports:
            with console.status(f"{catalogue.name}: {devices} devices, {rounds} rounds, {transport}"):
                figures.append(_measure(catalogue, devices, rounds, transport))
    show(console, figures)
    write_figures(console, output, {"machine": describe_machine(), "runs": figures}, as_json=as_json)
    return figures


def _measure(catalogue: Catalogue, devices: int, rounds: int, transport: Transport) -> dict[str, Any]:
    with tempfile.TemporaryDirectory(prefix="secemb-load-") as folder:
        pair = Pair(Path(folder), task_for(catalogue, cohort=devices), relayed=transport == Transport.RELAYED)
        with pair.running():
            before = [server.usage() for server in pair.servers]
            fleet = asyncio.run(run_fleet(pair, devices=devices, rounds=rounds))
            after = [server.usage() for server in pair.servers]
            endings = [server.endings() for server in pair.servers]
    # Keys and update, to each server that a device calls.
    bodies = 2 * max(fleet.finished, 1) * (1 if transport == Transport.RELAYED else 2)
    bare = bare_request_ms(sent=fleet.sent // bodies, received=fleet.received // bodies, connections=min(devices, 100))
    return {"transport": transport.value} | figure(catalogue, devices, fleet, before, after, endings, bare)
