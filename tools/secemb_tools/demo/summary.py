"""How a demonstration ends: what it came to, as a table for people and as JSON for programs."""

from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from secemb_tools.demo.evidence import ServerView, Total, Traffic
from secemb_tools.demo.watch import Seen
from secemb_tools.simulation.run import Run, last_rmse
from secemb_tools.transport import Transport

# What no measurement shows is said as what it is.
EXPLANATION = (
    "Explanation: bytes that look random are a sign, not a proof. Why either server could have made up all of its own "
    "messages without knowing a single rating is in docs/reference/protocol.md, section 16."
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Ending:
    """Everything that a demonstration has shown."""

    run: Run
    seen: list[Seen]
    transport: Transport
    ratings: tuple[int, int]  # of the device with the fewest, and of the one with the most
    traffic: Traffic
    servers: list[ServerView]
    total: Total | None  # the last sum
    troubled: int  # devices that uploaded zeros
    seconds: float

    @property
    def good(self) -> bool:
        """Tell whether everything that must hold did."""
        rounds = all(one.digests_equal and one.dropped == 0 for one in self.seen)
        return (
            rounds and self.run.same_as_plain is True and self.troubled == 0 and all(one.good for one in self.servers)
        )

    def as_json(self) -> dict[str, Any]:
        """Return everything as plain data."""
        return self.run.as_json() | {
            "format": "secemb/1 demo",
            "good": self.good,
            "seconds": round(self.seconds, 3),
            "rounds": [{**asdict(one), "dropped": one.dropped} for one in self.seen],
            "transport": self.transport.value,
            "ratings_per_device": list(self.ratings),
            "bytes_per_device": self.traffic.as_json(),
            "servers": [asdict(one) for one in self.servers],
            "sum_zeros": None if self.total is None else self.total.zeros,
            "sum_compressed": None if self.total is None else self.total.compressed,
        }


def show(console: Console, ending: Ending) -> None:
    """Print the table and one sentence."""
    table = Table("", "with SecEmb", "without", "", box=SIMPLE_HEAD, show_edge=False, padding=(0, 1))
    for row in comparison(ending):
        table.add_row(*row)
    console.print(table)
    seen = Table("what it saw", "server 0", "server 1", box=SIMPLE_HEAD, show_edge=False, padding=(0, 1))
    for line in sights(ending):
        seen.add_row(*line)
    console.print(seen)
    console.print(learned(ending))
    console.print(f"[dim]{EXPLANATION}[/dim]")
    words = "[bold green]All as it must be[/bold green]" if ending.good else "[bold red]FAILED[/bold red]"
    console.print(f"{words} in {ending.seconds:.0f} seconds.")


def comparison(ending: Ending) -> list[tuple[str, str, str, str]]:
    """Return the private run against a plain one."""
    run, traffic = ending.run, ending.traffic
    plain = last_rmse(run.plain or [])
    verdict = "the same model, bit for bit" if run.same_as_plain else "NOT the same model"
    return [
        ("fleet RMSE at the end", _error(run.rmse), _error(plain), verdict),
        _bytes(f"a device sends, {ending.transport}", traffic.sent, traffic.full_sent),
        _bytes("a device receives", traffic.received, traffic.full_received),
    ]


def sights(ending: Ending) -> list[tuple[str, str, str]]:
    """Return what was measured in each server's ledger and files, a line for each thing."""
    fewest, most = ending.ratings
    lines: list[tuple[str, Callable[[ServerView], str]]] = [
        ("sessions that it took in", lambda one: f"{one.sessions:,}"),
        ("messages that it still holds", lambda one: f"{one.messages:,}"),
        ("keys of a session", lambda one: _size(one.keys_bytes)),
        ("update of a session", lambda one: _size(one.update_bytes)),
        (f"lengths, of devices with {fewest} to {most} ratings", lambda one: str(one.lengths)),
        ("messages that are there twice", lambda one: str(one.repeated)),
        ("what zlib leaves of them", lambda one: _share(one.compressed)),
        ("what zlib leaves of its part of the sum", lambda one: _share(one.share_compressed)),
        ("ones among the bits of that part", lambda one: _share(one.share_ones)),
        ("processor time", lambda one: _seconds(one.cpu_seconds)),
    ]
    first, second = ending.servers
    return [(name, shown(first), shown(second)) for name, shown in lines]


def learned(ending: Ending) -> str:
    """Return what the two parts of a sum show when they are added, which neither shows alone."""
    words = f"Added, the two parts are the sum over {ending.run.scenario.cohort} devices, one for each round."
    if ending.total is None:
        return words
    zeros, left = ending.total.zeros, ending.total.compressed
    return (
        f"{words} In the last, {zeros:.0%} of the numbers are zero and zlib leaves {left:.0%}: neither part shows that."
    )


def _bytes(name: str, mine: int, whole: int) -> tuple[str, str, str, str]:
    factor = whole / max(mine, 1)
    words = f"{factor:.1f} times less than the whole table" if factor > 1 else "so small a table is better sent whole"
    return name, _size(mine), _size(whole), words


def _size(count: int) -> str:
    return f"{count / 1e3:,.1f} kB" if count >= 1000 else f"{count} bytes"


def _share(value: float | None) -> str:
    return "-" if value is None else f"{value:.1%}"


def _seconds(value: float | None) -> str:
    return "-" if value is None else f"{value:.1f} s"


def _error(value: float | None) -> str:
    return "-" if value is None else f"{value:.4f}"
