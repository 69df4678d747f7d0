"""The relayed transport on the wire: bytes of a device and round, time of a read, and what a session costs a server.

Real services on loopback and the SDK's own client. Bytes are counted by a proxy: HTTP headers are in them, and in a
second run TLS as well.
"""

import asyncio
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from rich.console import Console

from secemb_lab.bench.report import describe_machine
from secemb_lab.loadtest.loadtest import task_for
from secemb_lab.wire.proxy import proxy
from secemb_lab.wire.reads import Reads, measure_reads
from secemb_lab.wire.report import keeps, show
from secemb_lab.wire.rounds import measure_rounds
from secemb_shared.messages import Sizes
from secemb_tools.catalogues import Catalogue
from secemb_tools.local import Pair
from secemb_tools.output import console_for, write_figures
from secemb_tools.transport import Transport

__all__ = ["LIMITS", "keeps", "run"]

# What a device may move in a round, in bytes up and down, by catalogue.
LIMITS = {
    "ML100K": (80_000, 60_000),
    "ML1M": (124_000, 92_000),
    "ML10M": (131_000, 94_000),
    "ML25M": (232_000, 152_000),
    "Yelp": (241_000, 152_000),
}
WAYS = (Transport.DIRECT, Transport.RELAYED)
_TIMED = ("ML1M", "Yelp")  # one small and one large
_DISTANCE_SECONDS = 0.02  # each way: 40 ms for a question and its answer


def run(output: Path, chosen: list[Catalogue], *, sessions: int, as_json: bool = False) -> dict[str, Any]:
    """Measure, print tables and write the figures as JSON; with `as_json` print that too."""
    console = console_for(as_json=as_json, width=170)
    figures: dict[str, Any] = {"machine": describe_machine(), "bytes": [], "reads": []}
    for catalogue in chosen:
        with _step(console, f"{catalogue.name}: bytes of a device, without and with TLS"):
            figures["bytes"].append(_bytes(catalogue))
    for catalogue in [one for one in chosen if one.name in _TIMED]:
        for seconds in (0.0, _DISTANCE_SECONDS):
            with _step(console, f"{catalogue.name}: reads with {2e3 * seconds:.0f} ms between the servers"):
                figures["reads"].append(_reads(catalogue, seconds, sessions))
    show(console, figures)
    write_figures(console, output, figures, as_json=as_json)
    return figures


@contextmanager
def _step(console: Console, name: str) -> Iterator[None]:
    """Show what is being measured, and afterwards how long it took."""
    start = time.monotonic()
    with console.status(name):
        yield
    console.print(f"{name}: {time.monotonic() - start:.0f} s", highlight=False)


def _bytes(catalogue: Catalogue) -> dict[str, Any]:
    found: dict[str, Any] = {"catalogue": catalogue.name, "limit": LIMITS[catalogue.name]}
    with tempfile.TemporaryDirectory(prefix="secemb-wire-") as folder:
        pair = Pair(Path(folder), task_for(catalogue, cohort=2), relayed=True)
        sizes = Sizes.of(pair.task)
        messages = {"direct": (sizes.upload, sizes.download), "relayed": (sizes.relayed_upload, sizes.relayed_download)}
        with pair.running():
            for way in WAYS:
                plain = asyncio.run(measure_rounds(pair, Path(folder), way))
                tls = asyncio.run(measure_rounds(pair, Path(folder), way, tls=True)).figures()
                found[way.value] = {
                    **{name: moved for name, moved in plain.figures().items() if name != "anew"},
                    "messages": messages[way.value],
                    "requests": plain.later,
                    "tls": {"kept": tls["later"], "anew": tls["anew"]},
                }
    return found


def _reads(catalogue: Catalogue, seconds: float, sessions: int) -> dict[str, Any]:
    with tempfile.TemporaryDirectory(prefix="secemb-wire-") as folder:
        pair = Pair(Path(folder), task_for(catalogue, cohort=sessions), relayed=True)
        found = asyncio.run(_run_reads(pair, seconds, sessions))
    summaries = {name: reads.summary() for name, reads in found.items()}
    return {"catalogue": catalogue.name, "milliseconds_between_servers": 2e3 * seconds, **summaries}


async def _run_reads(pair: Pair, seconds: float, sessions: int) -> dict[str, Reads]:
    async with proxy(pair.peer_port, seconds=seconds) as (port, between):
        pair.peer_via = port
        try:
            await asyncio.to_thread(_start, pair)  # its requests pass through this loop's proxy
            await measure_reads(pair, Transport.RELAYED, between, sessions=sessions)  # warm-up
            found = {}
            for name, at_once in {"": 1, ", 16 at once": 16}.items():
                for way in WAYS:
                    found[way.value + name] = await measure_reads(
                        pair, way, between, sessions=sessions, at_once=at_once
                    )
            return found
        finally:
            await asyncio.to_thread(pair.stop)


def _start(pair: Pair) -> None:
    for pause in pair.starting():
        time.sleep(pause)
