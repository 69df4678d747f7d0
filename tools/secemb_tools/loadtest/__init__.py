"""Load: many httpx devices against two real services on loopback, and what a session costs each of them."""

import asyncio
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from secemb_tools.bench.catalogues import Catalogue
from secemb_tools.bench.machine import describe_machine
from secemb_tools.figures import console_for, write_figures
from secemb_tools.loadtest.bare import bare_request_ms
from secemb_tools.loadtest.fleet import run_fleet
from secemb_tools.loadtest.report import figure, show
from secemb_tools.loadtest.task import task_for
from secemb_tools.local import Pair
from secemb_tools.transport import Transport


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
