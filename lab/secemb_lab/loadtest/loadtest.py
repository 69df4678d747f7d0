"""The task of a measurement: one of the paper's catalogues, with rounds that wait for everybody."""

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
from secemb_tools.operate.tasks import Wishes, make_task
from secemb_tools.output import console_for, write_figures
from secemb_tools.transport import Transport


def task_for(catalogue: Catalogue, *, cohort: int) -> TaskSpec:
    """Return the task that both services are given."""
    wishes = Wishes(
        name=catalogue.name,
        items=catalogue.items,
        width=WIDTH,
        dense_size=0,
        capacity=catalogue.capacity,
        layout="binned",
        loss=1e-6,
        ring_bits=32,
        fraction_bits=16,
        clip=16,
        cohort=cohort,
        min_cohort=2,
        rounds=1000,
        join_seconds=60,
        upload_seconds=300,
        optimiser="adam",
        row_rate="0.025",
        dense_rate="0.001",
        seed=0,
        initial_scale="0.01",
    )
    return make_task(wishes)


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
    bodies = (
        2 * max(fleet.finished, 1) * (1 if transport == Transport.RELAYED else 2)
    )  # keys and update, to each server
    bare = bare_request_ms(sent=fleet.sent // bodies, received=fleet.received // bodies, connections=min(devices, 100))
    return {"transport": transport.value} | figure(catalogue, devices, fleet, before, after, endings, bare)
