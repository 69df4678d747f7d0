"""The result of a demonstration, as tables and as JSON."""

from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from secemb_tools.demo.evidence import ServerView, Total, Traffic
from secemb_tools.local.rounds import RoundRecord
from secemb_tools.simulation.run import Run, last_rmse
from secemb_tools.transport import Transport

# What no measurement can show is labelled as such.
EXPLANATION = (
    "Explanation: bytes that look random are an indication, not a proof. The argument that either server could have "
    "simulated all of its messages without knowing a single rating is in docs/reference/protocol.md, section 16."
)


@dataclass(frozen=True, slots=True, kw_only=True)
class DemoResult:
    """Everything that a demonstration measured."""

    run: Run
    rounds: list[RoundRecord]
    transport: Transport
    ratings: tuple[int, int]  # the fewest and the most that any device has
    traffic: Traffic
    servers: list[ServerView]
    total: Total | None  # the last sum
    troubled: int  # devices that uploaded zeros
    seconds: float

    @property
    def good(self) -> bool:
        """Tell whether every check passed."""
        complete = all(one.digests_equal and one.dropped == 0 for one in self.rounds)
        return (
            complete and self.run.same_as_plain is True and self.troubled == 0 and all(one.good for one in self.servers)
        )

    def as_json(self) -> dict[str, Any]:
        """Return everything as plain data."""
        return self.run.as_json() | {
            "format": "secemb/1 demo",
            "good": self.good,
            "seconds": round(self.seconds, 3),
            "rounds": [asdict(one) for one in self.rounds],
            "transport": self.transport.value,
            "ratings_per_device": list(self.ratings),
            "bytes_per_device": self.traffic.as_json(),
            "servers": [asdict(one) for one in self.servers],
            "sum_zeros": None if self.total is None else self.total.zeros,
            "sum_compressed": None if self.total is None else self.total.compressed,
        }


def show(console: Console, result: DemoResult) -> None:
    """Print the tables and the verdict."""
    table = Table("", "with SecEmb", "without", "", box=SIMPLE_HEAD, show_edge=False, padding=(0, 1))
    for row in comparison(result):
        table.add_row(*row)
    console.print(table)
    views = Table("what each server saw", "server 0", "server 1", box=SIMPLE_HEAD, show_edge=False, padding=(0, 1))
    for line in server_views(result):
        views.add_row(*line)
    console.print(views)
    console.print(opened_sum(result))
    console.print(f"[dim]{EXPLANATION}[/dim]")
    words = "[bold green]All checks passed[/bold green]" if result.good else "[bold red]FAILED[/bold red]"
    console.print(f"{words} in {result.seconds:.0f} seconds.")


def comparison(result: DemoResult) -> list[tuple[str, str, str, str]]:
    """Return the private run beside a plain one."""
    run, traffic = result.run, result.traffic
    plain = last_rmse(run.plain or [])
    verdict = "the same model, bit for bit" if run.same_as_plain else "NOT the same model"
    return [
        ("fleet RMSE at the end", _error(run.rmse), _error(plain), verdict),
        _bytes(f"a device sends, {result.transport}", traffic.sent, traffic.full_sent),
        _bytes("a device receives", traffic.received, traffic.full_received),
    ]


def server_views(result: DemoResult) -> list[tuple[str, str, str]]:
    """Return what was measured in each server's ledger and files, one line each."""
    fewest, most = result.ratings
    lines: list[tuple[str, Callable[[ServerView], str]]] = [
        ("sessions received", lambda one: f"{one.sessions:,}"),
        ("messages still stored", lambda one: f"{one.messages:,}"),
        ("keys of a session", lambda one: _size(one.keys_bytes)),
        ("update of a session", lambda one: _size(one.update_bytes)),
        (f"different lengths ({fewest} to {most} ratings per device)", lambda one: str(one.lengths)),
        ("messages stored twice", lambda one: str(one.repeated)),
        ("messages after zlib", lambda one: _share(one.compressed)),
        ("its share of the sum after zlib", lambda one: _share(one.share_compressed)),
        ("one bits in that share", lambda one: _share(one.share_ones)),
        ("processor time", lambda one: _seconds(one.cpu_seconds)),
    ]
    first, second = result.servers
    return [(name, shown(first), shown(second)) for name, shown in lines]


def opened_sum(result: DemoResult) -> str:
    """Return what the two shares show when they are added, which neither shows alone."""
    words = f"Added together, the two shares are the sum over the {result.run.scenario.cohort} devices of a round."
    if result.total is None:
        return words
    zeros, left = result.total.zeros, result.total.compressed
    return (
        f"{words} In the last sum {zeros:.0%} of the numbers are zero, and zlib shrinks it to {left:.0%}: neither "
        "share shows that."
    )


def _bytes(name: str, mine: int, whole: int) -> tuple[str, str, str, str]:
    factor = whole / max(mine, 1)
    words = f"{factor:.1f} times less than the whole table" if factor > 1 else "a table this small is better sent whole"
    return name, _size(mine), _size(whole), words


def _size(count: int) -> str:
    return f"{count / 1e3:,.1f} kB" if count >= 1000 else f"{count} bytes"


def _share(value: float | None) -> str:
    return "-" if value is None else f"{value:.1%}"


def _seconds(value: float | None) -> str:
    return "-" if value is None else f"{value:.1f} s"


def _error(value: float | None) -> str:
    return "-" if value is None else f"{value:.4f}"
