"""The figures of the wire as tables."""

from typing import Any

from rich.console import Console
from rich.table import Table

Pair = tuple[int, int] | list[int]


def show(console: Console, figures: dict[str, Any]) -> None:
    """Print what was measured."""
    console.print(_bytes(figures["bytes"]))
    console.print(_tls(figures["bytes"]))
    if figures["reads"]:
        console.print(_reads(figures["reads"]))


def keeps(one: dict[str, Any]) -> bool:
    """Tell whether a relayed device stays within the limit, in its first round as in all others."""
    rounds = (one["relayed"]["first"], one["relayed"]["later"])
    return all(moved <= most for round_ in rounds for moved, most in zip(round_, one["limit"], strict=True))


def _bytes(found: list[dict[str, Any]]) -> Table:
    table = _table(
        "Bytes of a device in a round, HTTP headers included (up / down)",
        *("catalogue", "direct", "relayed", "of it HTTP", "limit", "kept", "task and key, once in its life"),
    )
    for one in found:
        relayed = one["relayed"]
        cells = (one["direct"]["later"], relayed["later"], _less(relayed["later"], relayed["messages"]))
        kept = "yes" if keeps(one) else "NO"
        table.add_row(one["catalogue"], *map(_shown, cells), _shown(one["limit"]), kept, _shown(relayed["once"]))
    return table


def _tls(found: list[dict[str, Any]]) -> Table:
    table = _table(
        "What TLS 1.3 adds, one self-signed P-256 certificate (up / down)",
        *("catalogue", "direct, connection kept", "direct, new", "relayed, connection kept", "relayed, new"),
    )
    for one in found:
        ways = [(one[way], kind) for way in ("direct", "relayed") for kind in ("kept", "anew")]
        table.add_row(one["catalogue"], *(_shown(_less(way["tls"][kind], way["later"])) for way, kind in ways))
    return table


def _reads(found: list[dict[str, Any]]) -> Table:
    table = _table(
        "A read and an update (ms), and what a session costs the servers: CPU (ms), bytes between them, TLS included",
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


def _shown(moved: Pair) -> str:
    return f"{moved[0]:,} / {moved[1]:,}"


def _less(all_: Pair, some: Pair) -> tuple[int, int]:
    return all_[0] - some[0], all_[1] - some[1]
