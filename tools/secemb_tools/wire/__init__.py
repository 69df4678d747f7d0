"""The relayed transport on the wire: bytes of a device and round, time of a read, and what a session costs a server.

Real services on loopback and the SDK's own client. Bytes are counted by a proxy, headers included.
"""

import asyncio
import json
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

from secemb_shared.messages import Sizes
from secemb_tools.bench.catalogues import Catalogue
from secemb_tools.bench.machine import describe_machine
from secemb_tools.loadtest.task import task_for
from secemb_tools.local import Pair
from secemb_tools.wire.proxy import proxy
from secemb_tools.wire.reads import Reads, measure_reads
from secemb_tools.wire.rounds import Transport, measure_rounds

# What a device may move in a round, in bytes up and down, by catalogue.
LIMITS = {
    "ML100K": (80_000, 60_000),
    "ML1M": (124_000, 92_000),
    "ML10M": (131_000, 94_000),
    "ML25M": (232_000, 152_000),
    "Yelp": (241_000, 152_000),
}
WAYS: tuple[Transport, Transport] = ("direct", "relayed")
_DISTANCE_SECONDS = 0.02  # each way: 40 ms for a question and its answer


def run(output: Path, chosen: list[Catalogue], *, sessions: int, as_json: bool = False) -> dict[str, Any]:
    """Measure, print tables and write the figures as JSON; with `as_json` print that too."""
    console = Console(stderr=as_json)
    if not console.is_terminal:
        console = Console(width=150, stderr=as_json)
    figures: dict[str, Any] = {"machine": describe_machine(), "bytes": [], "reads": []}
    for catalogue in chosen:
        with console.status(f"{catalogue.name}: bytes of a device"):
            figures["bytes"].append(_bytes(catalogue))
    for catalogue in chosen:
        if catalogue.name in ("ML1M", "Yelp"):
            for seconds in (0.0, _DISTANCE_SECONDS):
                with console.status(f"{catalogue.name}: reads with {2e3 * seconds:.0f} ms between the servers"):
                    figures["reads"].append(_reads(catalogue, seconds, sessions))
    _show(console, figures)
    output.parent.mkdir(parents=True, exist_ok=True)
    output.write_text(json.dumps(figures, indent=1) + "\n")
    console.print(f"figures in {output}")
    if as_json:
        print(json.dumps(figures, indent=1))
    return figures


def _bytes(catalogue: Catalogue) -> dict[str, Any]:
    with tempfile.TemporaryDirectory(prefix="secemb-wire-") as folder:
        pair = Pair(Path(folder), task_for(catalogue, cohort=2), relayed=True)
        with pair.running():
            moved = {way: asyncio.run(measure_rounds(pair, Path(folder), way)) for way in WAYS}
        sizes = Sizes.of(pair.task)
    messages = {"direct": (sizes.upload, sizes.download), "relayed": (sizes.relayed_upload, sizes.relayed_download)}
    return {
        "catalogue": catalogue.name,
        "limit": LIMITS[catalogue.name],
        **{way: {"first": moved[way][0], "later": moved[way][1], "messages": messages[way]} for way in WAYS},
    }


def _reads(catalogue: Catalogue, seconds: float, sessions: int) -> dict[str, Any]:
    with tempfile.TemporaryDirectory(prefix="secemb-wire-") as folder:
        pair = Pair(Path(folder), task_for(catalogue, cohort=sessions), relayed=True)
        found = asyncio.run(_run_reads(pair, seconds, sessions))
    return {
        "catalogue": catalogue.name,
        "milliseconds_between_servers": 2e3 * seconds,
        **{name: _summary(reads) for name, reads in found.items()},
    }


async def _run_reads(pair: Pair, seconds: float, sessions: int) -> dict[str, Reads]:
    async with proxy(pair.peer_port, seconds=seconds) as (port, _):
        pair.peer_via = port
        try:
            await asyncio.to_thread(_start, pair)  # its questions pass through this loop's proxy
            for way in WAYS:  # the first rounds prepare what later ones find ready
                await measure_reads(pair, way, sessions=sessions)
            found = {}
            for name, at_once in {"": 1, ", 16 at once": 16}.items():
                for way in WAYS:
                    found[way + name] = await measure_reads(pair, way, sessions=sessions, at_once=at_once)
            return found
        finally:
            await asyncio.to_thread(pair.stop)


def _start(pair: Pair) -> None:
    for pause in pair.starting():
        time.sleep(pause)


def _summary(reads: Reads) -> dict[str, Any]:
    return {
        "keys_ms": dict(zip(("p50", "p95"), map(float, np.percentile(reads.keys_ms, [50, 95])), strict=True)),
        "update_ms": dict(zip(("p50", "p95"), map(float, np.percentile(reads.update_ms, [50, 95])), strict=True)),
        "cpu_ms_a_session": reads.cpu_ms,
    }


def _show(console: Console, figures: dict[str, Any]) -> None:
    table = Table(title="Bytes of a device in a round, on the wire (up / down)", title_justify="left")
    for name in ("catalogue", "direct", "relayed, first round", "relayed, later rounds", "of it HTTP", "limit", "kept"):
        table.add_column(name, justify="left" if name == "catalogue" else "right")
    for one in figures["bytes"]:
        relayed, limit = one["relayed"], one["limit"]
        more = [moved - message for moved, message in zip(relayed["later"], relayed["messages"], strict=True)]
        kept = all(moved <= most for moved, most in zip(relayed["later"], limit, strict=True))
        pairs = (one["direct"]["later"], relayed["first"], relayed["later"], more, limit)
        table.add_row(one["catalogue"], *(f"{up:,} / {down:,}" for up, down in pairs), "yes" if kept else "NO")
    console.print(table)
    table = Table(title="A read, and what a session costs (median ms; CPU ms by server)", title_justify="left")
    for name in ("catalogue", "between servers", "transport", "keys p50", "keys p95", "update p50", "CPU 0", "CPU 1"):
        table.add_column(name, justify="right")
    for one in figures["reads"]:
        for way, found in one.items():
            if isinstance(found, dict):
                cells = (found["keys_ms"]["p50"], found["keys_ms"]["p95"], found["update_ms"]["p50"])
                numbers = (f"{cell:.1f}" for cell in (*cells, *found["cpu_ms_a_session"]))
                table.add_row(one["catalogue"], f"{one['milliseconds_between_servers']:.0f} ms", way, *numbers)
    console.print(table)
