"""The figures as tables, the machine that they apply to, and the goals."""

import os
import platform
from importlib.metadata import version
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from secemb_tools.kernel import describe


def describe_machine() -> dict[str, str]:
    """Return the facts that readers need to compare figures."""
    return {
        "processor": _processor(),
        "cores": str(os.cpu_count()),
        "python": platform.python_version(),
        "numpy": version("numpy"),
        "cryptography": version("cryptography"),
        "kernel": describe().removeprefix("kernel: "),
    }


def _processor() -> str:
    """Return the processor's name if the system provides it."""
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.exists():
        for line in cpuinfo.read_text().splitlines():
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    return platform.processor() or platform.machine()


OPERATIONS = (
    "tree",
    "tree + Convert + accumulate",
    "tree + XOR answer",
    "tree + XOR answer + fingerprint",
    "key generation",
    "ConvertGen",
)
# The goal for the relayed transport, with one copy of everything and 48 bytes a slot for the check of keys; calling
# both servers costs twice that.
RELAYED_MB = {
    "ML100K": (0.087, 0.058),
    "ML1M": (0.135, 0.088),
    "ML10M": (0.143, 0.089),
    "ML25M": (0.252, 0.146),
    "Yelp": (0.261, 0.146),
}
Row = dict[str, Any]


def show_kernel(console: Console, figures: dict[str, list[Row]]) -> None:
    """Print each operation's nanoseconds, and their ratio to the AES limit."""
    table = Table(title="Kernel, one thread: ns per leaf (keys: ns per slot)", title_justify="left")
    for name in (
        "backend",
        "shape",
        "bare loop, ns per block",
        *OPERATIONS,
        "tree in blocks",
        "Convert output / bare loop",
        "what the fingerprint adds",
    ):
        table.add_column(name, justify="left" if name in ("backend", "shape") else "right")
    for row in figures["operations"]:
        cells = [f"{row['ns'][name]:,.2f}" for name in OPERATIONS]
        limit = [
            f"{row['tree_blocks']:.2f}",
            f"{100 * row['convert_share']:.0f} %",
            f"{100 * row['check_share']:.0f} %",
        ]
        table.add_row(row["backend"], row["shape"], f"{row['block_ns']:.3f}", *cells, *limit)
    console.print(table)
    for row in figures["threads"]:
        console.print(f"two threads, {row['work']}, {row['shape']}: {row['speedup']:.2f} times as fast as one")


def show_sharing(console: Console, figures: list[Row]) -> None:
    """Print the times of the device's cryptography only."""
    table = Table(
        title="Placement, keys and correction words compared with full-matrix sharing, µs on a device",
        title_justify="left",
    )
    for name in ("catalogue", "backend", "placement alone", "all", "full matrix", "times", "AES blocks, times"):
        table.add_column(name, justify="left" if name in ("catalogue", "backend") else "right")
    for row in figures:
        table.add_row(
            row["catalogue"],
            row["backend"],
            f"{row['place_us']:.1f}",
            f"{row['secemb_us']:.1f}",
            f"{row['full_us']:,.0f}",
            f"{row['ratio']:.1f}",
            f"{row['blocks_ratio']:.1f}",
        )
    console.print(table)


def show_catalogues(console: Console, figures: list[Row]) -> None:
    """Print the costs of a device and a server for each construction."""
    table = Table(title="Cost of a round for a device and each server (MF, 65 numbers per row)", title_justify="left")
    names = ("slots", "depth", "place ms", "share ms", "up MB", "down MB", "server answer ms", "server add ms")
    for name in ("catalogue", "construction", *names):
        table.add_column(name, justify="left" if name in ("catalogue", "construction") else "right")
    for row in figures:
        table.add_row(
            row["catalogue"],
            row["construction"],
            str(row["slots"]),
            str(row["depth"]),
            f"{row['place_ms']:.2f}",
            f"{row['device_ms']:.3f}",
            f"{row['upload_bytes'] / 1e6:.3f}",
            f"{row['download_bytes'] / 1e6:.3f}",
            f"{row['answer_ms']:.2f}",
            f"{row['add_ms']:.2f}",
            end_section=row["construction"] == "full matrix",
        )
    console.print(table)


def bars(figures: dict[str, Any]) -> list[Row]:
    """Return every goal with its measurement."""
    return [
        *_kernel_bars(figures["kernel"]["operations"]),
        *_noise_bars(figures["noise"]),
        *_sharing_bars(figures["sharing"]),
        *_catalogue_bars(figures["catalogues"]),
    ]


def show_bars(console: Console, found: list[Row]) -> None:
    """Print the goals, including missed ones."""
    table = Table(title="Goals", title_justify="left")
    for name in ("goal", "wanted", "measured", ""):
        table.add_column(name, justify="left" if name == "goal" else "right")
    for bar in found:
        mark = "[green]✓[/green]" if bar["reached"] else "[red]short[/red]"
        table.add_row(bar["name"], f"{'≥' if bar['more'] else '≤'} {bar['goal']:.3g}", f"{bar['measured']:.3g}", mark)
    console.print(table)


def _bar(name: str, measured: float, goal: float, *, more: bool) -> Row:
    reached = measured >= goal if more else measured <= goal
    return {"name": name, "measured": measured, "goal": goal, "more": more, "reached": reached}


def _kernel_bars(rows: list[Row]) -> list[Row]:
    native = [row for row in rows if row["backend"] != "portable"]
    return [bar for row in native if row["backend"] == native[0]["backend"] for bar in _shape_bars(row)]


def _shape_bars(row: Row) -> list[Row]:
    where, ns = f"{row['backend']}, {row['shape']}", row["ns"]
    level = ns["key generation"] / row["depth"]
    return [
        _bar(f"Convert output, with tree and sums, of the bare loop ({where})", row["convert_share"], 0.7, more=True),
        _bar(f"tree, blocks of the bare loop per leaf ({where})", row["tree_blocks"], 3.0, more=False),
        _bar(f"tree, ns per leaf; libdpf: 6.65 ({where})", ns["tree"], 6.65, more=False),
        _bar(f"65 numbers per leaf, ns; tri-dpf, 64: 86 ({where})", ns[OPERATIONS[1]], 86, more=False),
        _bar(f"key pair, ns per level; myl7/fss: 260 for 16 ({where})", level, 260 / 16, more=False),
    ]


def _noise_bars(rows: list[Row]) -> list[Row]:
    native = [row for row in rows if row["backend"] != "portable"]
    return [_bar("noise, seconds for 10^7 numbers on one core", row["seconds"], 2, more=False) for row in native]


def _sharing_bars(rows: list[Row]) -> list[Row]:
    what, most_ms = "placement, keys and correction words", {"ML1M": 0.28, "Yelp": 0.45}
    chosen = [row for row in rows if row["catalogue"] in most_ms]
    times = [
        _bar(
            f"{what}, ms, {row['catalogue']} ({row['backend']})",
            row["secemb_us"] / 1e3,
            most_ms[row["catalogue"]],
            more=False,
        )
        for row in chosen
    ]
    return times + [
        _bar(
            f"{what}, times faster than full-matrix sharing, {row['catalogue']} ({row['backend']})",
            row["ratio"],
            1,
            more=True,
        )
        for row in chosen
    ]


def _catalogue_bars(rows: list[Row]) -> list[Row]:
    of = {(row["catalogue"], row["construction"]): row for row in rows}
    names = list(dict.fromkeys(row["catalogue"] for row in rows))
    work = [_work_bar(name, of) for name in names if name in ("ML1M", "ML10M")]  # the catalogues with m' = 300
    return work + [bar for name in names for bar in _byte_bars(name, of[name, "SecEmb, binned"])]


def _work_bar(name: str, of: dict[tuple[str, str], Row]) -> Row:
    direct, binned = of[name, "SecEmb, direct"], of[name, "SecEmb, binned"]
    ratio = (direct["answer_ms"] + direct["add_ms"]) / (binned["answer_ms"] + binned["add_ms"])
    return _bar(f"server work, direct over binned, {name}", ratio, 50, more=True)


def _byte_bars(name: str, row: Row) -> list[Row]:
    (up, down), (sent, received) = RELAYED_MB[name], (row["upload_bytes"], row["download_bytes"])
    return [
        _bar(f"upload to each server, MB, {name}", round(sent / 2e6, 3), up, more=False),
        _bar(f"download from each server, MB, {name}", round(received / 2e6, 3), down, more=False),
    ]
