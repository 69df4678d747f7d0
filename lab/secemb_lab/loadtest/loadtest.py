"""`make loadtest`: one of the paper's catalogues, two real servers, and rounds that wait for all devices."""

import asyncio
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

from secemb_lab.bench.report import describe_machine
from secemb_lab.loadtest.bare import bare_request_ms
from secemb_lab.loadtest.fleet import Fleet, run_fleet
from secemb_lab.loadtest.not_now import GOAL, measure_not_now
from secemb_shared.messages import TaskSpec
from secemb_tools.catalogues import WIDTH, PaperCatalogue
from secemb_tools.local import Pair, Usage
from secemb_tools.operate.tasks import TaskOptions, make_task
from secemb_tools.output import console_for, write_figures
from secemb_tools.transport import Transport

_TURNED_AWAY = 80  # refused requests to join, per device


def task_for(catalogue: PaperCatalogue, *, cohort: int, optimiser: str = "adam", upload_seconds: int = 300) -> TaskSpec:
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
            upload_seconds=upload_seconds,
            optimiser=optimiser,
        )
    )


def run(
    output: Path,
    chosen: list[PaperCatalogue],
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


def _measure(catalogue: PaperCatalogue, devices: int, rounds: int, transport: Transport) -> dict[str, Any]:
    with tempfile.TemporaryDirectory(prefix="secemb-load-") as folder:
        task, relayed = task_for(catalogue, cohort=devices), transport == Transport.RELAYED
        pair = Pair(Path(folder), task, relayed=relayed)
        with pair.running():
            before = [server.usage() for server in pair.servers]
            fleet = asyncio.run(run_fleet(pair, devices=devices, rounds=rounds))
            after = [server.usage() for server in pair.servers]
            endings = [server.endings() for server in pair.servers]
            not_now = measure_not_now(pair, requests=_TURNED_AWAY * devices)
    # Keys and update, to each server that a device calls.
    bodies = 2 * max(fleet.finished, 1) * (1 if transport == Transport.RELAYED else 2)
    bare = bare_request_ms(sent=fleet.sent // bodies, received=fleet.received // bodies, connections=min(devices, 100))
    found = {"transport": transport.value, "not_now": not_now}
    return found | figure(catalogue, devices, fleet, before, after, endings, bare)


Endings = list[tuple[float, int]]
_AFTER_SEAL = ("accumulate", "noise")  # the kernel's work between sealing and publishing


def figure(
    catalogue: PaperCatalogue,
    devices: int,
    fleet: Fleet,
    before: list[Usage],
    after: list[Usage],
    endings: list[Endings],
    bare_request_ms: float,
) -> dict[str, Any]:
    """Return all figures of one run."""
    return {
        "catalogue": catalogue.name,
        "devices": devices,
        "sessions": fleet.finished,
        "failed": fleet.failed,
        "joins_a_session": fleet.joins / max(fleet.finished, 1),
        "bytes_up_per_device": fleet.sent // max(fleet.finished, 1),
        "bytes_down_per_device": fleet.received // max(fleet.finished, 1),
        "sessions_per_second": fleet.finished / fleet.seconds,
        "bare_request_ms": bare_request_ms,  # the minimum cost of a request: see bare.py
        "generator_cpu_ms": 1e3 * fleet.generator_cpu_seconds / max(fleet.finished, 1),
        "keys_ms": _percentiles(fleet.keys_seconds),
        "update_ms": _percentiles(fleet.update_seconds),
        "servers": [
            _server(fleet.finished, old, new, ended, bare_request_ms)
            for old, new, ended in zip(before, after, endings, strict=True)
        ],
    }


def _server(sessions: int, old: Usage, new: Usage, endings: Endings, bare_request_ms: float) -> dict[str, Any]:
    spent = {name: seconds - old.kernel_seconds.get(name, 0.0) for name, seconds in new.kernel_seconds.items()}
    cpu, kernel = new.cpu_seconds - old.cpu_seconds, sum(spent.values())
    ending = max((seconds for seconds, _ in endings), default=float("nan"))
    return {
        "cpu_ms_a_session": 1e3 * cpu / max(sessions, 1),
        "kernel_ms_a_session": 1e3 * kernel / max(sessions, 1),
        "kernel_ms_by_operation": {name: 1e3 * seconds / max(sessions, 1) for name, seconds in spent.items()},
        "kernel_share": kernel / cpu if cpu else float("nan"),
        "beyond_kernel_ms_a_session": 1e3 * (cpu - kernel) / max(sessions, 1),
        "beyond_kernel_in_bare_requests": 1e3 * (cpu - kernel) / max(sessions, 1) / bare_request_ms,
        "memory_mb": new.memory_bytes / 1e6,
        "loop_lag_ms": 1e3 * new.largest_lag_seconds,
        "seal_to_publish_seconds": ending,
        "seal_to_publish_in_kernel_times": ending * max(len(endings), 1) / sum(map(spent.__getitem__, _AFTER_SEAL)),
    }


def _percentiles(seconds: list[float]) -> dict[str, float]:
    values = np.percentile(np.array(seconds or [float("nan")]) * 1e3, [50, 95, 99])
    return dict(zip(("p50", "p95", "p99"), map(float, values), strict=True))


def show(console: Console, figures: list[dict[str, Any]]) -> None:
    """Print the measurements of devices, one row per run, and the costs, one row per server."""
    console.print(_devices(figures))
    console.print(_costs(figures))
    for run in figures:
        own, routed, least = (run["not_now"][name] for name in ("not_now_ms", "bare_route_ms", "bare_uvicorn_ms"))
        console.print(
            f"{_name(run)}: turning a device away costs {own:.2f} ms, {own / least:.2f} times a bare uvicorn "
            f"(goal: at most {GOAL:g}) and {own / routed:.2f} times a bare FastAPI route, which is "
            f"{routed / least:.2f} times a bare uvicorn itself"
        )


def _devices(figures: list[dict[str, Any]]) -> Table:
    parts = ("p50", "p95", "p99")
    names = (
        "sessions/s",
        "failed",
        "kB up",
        "kB down",
        *(f"{what} {part}" for what in ("keys", "update") for part in parts),
    )
    table = _table("Sessions against two servers on loopback; times in ms", names)
    for run in figures:
        table.add_row(
            _name(run),
            f"{run['sessions_per_second']:.1f}",
            str(run["failed"]),
            f"{run['bytes_up_per_device'] / 1e3:.0f}",
            f"{run['bytes_down_per_device'] / 1e3:.0f}",
            *(f"{run[what][part]:.0f}" for what in ("keys_ms", "update_ms") for part in parts),
        )
    return table


def _costs(figures: list[dict[str, Any]]) -> Table:
    names = (
        "server",
        "CPU ms",
        "kernel ms",
        "beyond",
        "× bare request",
        "kernel share",
        "memory MB",
        "loop lag ms",
        "seal to publish s",
        "× kernel",
    )
    table = _table("What a session costs each server", names)
    for run in figures:
        for role, server in enumerate(run["servers"]):
            table.add_row(
                "" if role else _name(run),
                str(role),
                f"{server['cpu_ms_a_session']:.2f}",
                f"{server['kernel_ms_a_session']:.2f}",
                f"{server['beyond_kernel_ms_a_session']:.2f}",
                f"{server['beyond_kernel_in_bare_requests']:.0f}",
                f"{server['kernel_share']:.0%}",
                f"{server['memory_mb']:.0f}",
                f"{server['loop_lag_ms']:.1f}",
                f"{server['seal_to_publish_seconds']:.2f}",
                f"{server['seal_to_publish_in_kernel_times']:.1f}",
                end_section=role == 1,
            )
    return table


def _table(title: str, names: tuple[str, ...]) -> Table:
    table = Table("catalogue", title=title, title_justify="left")
    for name in names:
        table.add_column(name, justify="right")
    return table


def _name(run: dict[str, Any]) -> str:
    return f"{run['catalogue']}, {run['transport']}"
