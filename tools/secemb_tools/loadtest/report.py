"""What a session costs, as figures and as a table."""

from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

from secemb_tools.bench.catalogues import Catalogue
from secemb_tools.loadtest.fleet import Fleet
from secemb_tools.local import Usage

Endings = list[tuple[float, int]]


def figure(
    catalogue: Catalogue, devices: int, fleet: Fleet, before: list[Usage], after: list[Usage], endings: list[Endings]
) -> dict[str, Any]:
    """Return all figures of one run."""
    return {
        "catalogue": catalogue.name,
        "devices": devices,
        "sessions": fleet.finished,
        "failed": fleet.failed,
        "bytes_up_per_device": fleet.sent // max(fleet.finished, 1),
        "bytes_down_per_device": fleet.received // max(fleet.finished, 1),
        "sessions_per_second": fleet.finished / fleet.seconds,
        "generator_cpu_ms": 1e3 * fleet.generator_cpu_seconds / max(fleet.finished, 1),
        "keys_ms": _percentiles(fleet.keys_seconds),
        "update_ms": _percentiles(fleet.update_seconds),
        "servers": [
            _server(fleet.finished, old, new, ended) for old, new, ended in zip(before, after, endings, strict=True)
        ],
    }


def _server(sessions: int, old: Usage, new: Usage, endings: Endings) -> dict[str, float]:
    cpu, kernel = new.cpu_seconds - old.cpu_seconds, new.kernel_seconds - old.kernel_seconds
    return {
        "cpu_ms_a_session": 1e3 * cpu / max(sessions, 1),
        "kernel_ms_a_session": 1e3 * kernel / max(sessions, 1),
        "beyond_kernel_ms_a_session": 1e3 * (cpu - kernel) / max(sessions, 1),
        "memory_mb": new.memory_bytes / 1e6,
        "loop_lag_ms": 1e3 * new.largest_lag_seconds,
        "seal_to_publish_seconds": max((seconds for seconds, _ in endings), default=float("nan")),
    }


def _percentiles(seconds: list[float]) -> dict[str, float]:
    values = np.percentile(np.array(seconds or [float("nan")]) * 1e3, [50, 95, 99])
    return dict(zip(("p50", "p95", "p99"), map(float, values), strict=True))


def show(console: Console, figures: list[dict[str, Any]]) -> None:
    """Print a row for each run and server."""
    table = Table(title="Sessions against two services on loopback", title_justify="left")
    names = ("kB up/down", "sessions/s", "failed", "keys p50/p95/p99 ms", "update p50/p95/p99 ms", "server")
    for name in (
        "catalogue",
        *names,
        "CPU ms",
        "kernel ms",
        "beyond kernel ms",
        "memory MB",
        "loop lag ms",
        "seal to publish s",
    ):
        table.add_column(name, justify="left" if name == "catalogue" else "right")
    for run in figures:
        for role, server in enumerate(run["servers"]):
            head = (
                (
                    f"{run['catalogue']}, {run['transport']}",
                    _moved(run),
                    f"{run['sessions_per_second']:.1f}",
                    *_rest(run),
                )
                if role == 0
                else ("",) * 6
            )
            table.add_row(
                *head,
                str(role),
                f"{server['cpu_ms_a_session']:.2f}",
                f"{server['kernel_ms_a_session']:.2f}",
                f"{server['beyond_kernel_ms_a_session']:.2f}",
                f"{server['memory_mb']:.0f}",
                f"{server['loop_lag_ms']:.1f}",
                f"{server['seal_to_publish_seconds']:.2f}",
                end_section=role == 1,
            )
    console.print(table)


def _moved(run: dict[str, Any]) -> str:
    return f"{run['bytes_up_per_device'] / 1e3:.0f}/{run['bytes_down_per_device'] / 1e3:.0f}"


def _rest(run: dict[str, Any]) -> tuple[str, str, str]:
    def of(name: str) -> str:
        return "/".join(f"{run[name][part]:.0f}" for part in ("p50", "p95", "p99"))

    return str(run["failed"]), of("keys_ms"), of("update_ms")
