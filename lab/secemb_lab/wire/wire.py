"""`make wire`: bytes of a device in a round, time of a read, and what a session costs a server, for both transports.

Real servers on loopback and the SDK's own client. A proxy counts the bytes: HTTP headers are included, and in a second
run TLS as well.
"""

import asyncio
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from secemb_lab.bench.report import describe_machine
from secemb_lab.loadtest.loadtest import task_for
from secemb_lab.wire.proxy import proxy
from secemb_lab.wire.reads import Reads, measure_reads
from secemb_lab.wire.rounds import measure_rounds
from secemb_shared.messages import Sizes
from secemb_tools.catalogues import PaperCatalogue
from secemb_tools.local import Pair
from secemb_tools.output import console_for, write_figures
from secemb_tools.transport import Transport

# The most bytes that a device may move in a round, up and down, by catalogue: 48 a slot and 3,600 of what it sends are
# for the servers' checks of its keys and of its update.
LIMITS = {
    "ML100K": (94_000, 60_000),
    "ML1M": (143_000, 92_000),
    "ML10M": (150_000, 94_000),
    "ML25M": (262_000, 152_000),
    "Yelp": (271_000, 152_000),
}
WAYS = (Transport.DIRECT, Transport.RELAYED)
_TIMED = ("ML1M", "Yelp")  # one small and one large
_DISTANCE_SECONDS = 0.02  # each way: 40 ms for a question and its answer


def run(output: Path, chosen: list[PaperCatalogue], *, sessions: int, as_json: bool = False) -> dict[str, Any]:
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
    """Show the current measurement, and its duration at the end."""
    start = time.monotonic()
    with console.status(name):
        yield
    console.print(f"{name}: {time.monotonic() - start:.0f} s", highlight=False)


def _bytes(catalogue: PaperCatalogue) -> dict[str, Any]:
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
                    **{name: moved for name, moved in plain.figures().items() if name != "reconnected"},
                    "messages": messages[way.value],
                    "requests": plain.later,
                    "tls": {"kept": tls["later"], "reconnected": tls["reconnected"]},
                }
    return found


def _reads(catalogue: PaperCatalogue, seconds: float, sessions: int) -> dict[str, Any]:
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


def show(console: Console, figures: dict[str, Any]) -> None:
    """Print the measurements."""
    console.print(_bytes_table(figures["bytes"]))
    console.print(_tls_table(figures["bytes"]))
    if figures["reads"]:
        console.print(_reads_table(figures["reads"]))


def keeps(one: dict[str, Any]) -> bool:
    """Tell whether a relayed device stays within the limit, including its first round."""
    rounds = (one["relayed"]["first"], one["relayed"]["later"])
    return all(moved <= most for round_ in rounds for moved, most in zip(round_, one["limit"], strict=True))


def _bytes_table(found: list[dict[str, Any]]) -> Table:
    table = _table(
        "Bytes of a device in a round, HTTP headers included (up / down)",
        *("catalogue", "direct", "relayed", "of which HTTP", "limit", "kept", "task and key, once per device"),
    )
    for one in found:
        relayed = one["relayed"]
        cells = (one["direct"]["later"], relayed["later"], _less(relayed["later"], relayed["messages"]))
        kept = "yes" if keeps(one) else "NO"
        table.add_row(one["catalogue"], *map(_shown, cells), _shown(one["limit"]), kept, _shown(relayed["once"]))
    return table


def _tls_table(found: list[dict[str, Any]]) -> Table:
    table = _table(
        "What TLS 1.3 adds, one self-signed P-256 certificate (up / down)",
        *("catalogue", "direct, connection kept", "direct, new", "relayed, connection kept", "relayed, new"),
    )
    for one in found:
        ways = [(one[way], kind) for way in ("direct", "relayed") for kind in ("kept", "reconnected")]
        table.add_row(one["catalogue"], *(_shown(_less(way["tls"][kind], way["later"])) for way, kind in ways))
    return table


def _reads_table(found: list[dict[str, Any]]) -> Table:
    table = _table(
        "Latency of a read and an update (ms); cost of a session for servers: CPU (ms), bytes between them with TLS",
        *("catalogue", "between servers", "transport", "keys p50", "keys p95", "update p50", "update p95"),
        *("CPU 0", "CPU 1", "0 to 1", "1 to 0"),
    )
    for one in found:
        for way, times in one.items():
            if isinstance(times, dict):
                cells = [times[step][part] for step in ("keys_ms", "update_ms") for part in ("p50", "p95")]
                numbers = (f"{cell:.1f}" for cell in (*cells, *times["cpu_ms_a_session"]))
                moved = (f"{count:,.0f}" for count in times["peer_bytes_a_session"])
                distance = f"{one['milliseconds_between_servers']:.0f} ms"
                table.add_row(one["catalogue"], distance, way, *numbers, *moved)
    return table


def _table(title: str, *columns: str) -> Table:
    table = Table(title=title, title_justify="left")
    for at, name in enumerate(columns):
        table.add_column(name, justify="right" if at else "left")
    return table


def _shown(moved: tuple[int, int] | list[int]) -> str:
    return f"{moved[0]:,} / {moved[1]:,}"


def _less(all_: tuple[int, int] | list[int], some: tuple[int, int] | list[int]) -> tuple[int, int]:
    return all_[0] - some[0], all_[1] - some[1]
