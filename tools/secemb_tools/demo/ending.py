"""How a demonstration ends: what it came to, as a table for people and as JSON for programs."""

from dataclasses import asdict, dataclass
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from secemb_tools.demo.evidence import ServerView, Traffic
from secemb_tools.demo.watching import Seen
from secemb_tools.simulation.run import Run, last_rmse


@dataclass(frozen=True, slots=True, kw_only=True)
class Ending:
    """Everything that a demonstration has shown."""

    run: Run
    seen: list[Seen]
    traffic: Traffic
    servers: list[ServerView]
    zeros: float | None  # in the last sum
    troubled: int  # devices that uploaded zeros
    seconds: float

    @property
    def good(self) -> bool:
        """Tell whether everything that must hold did."""
        rounds = all(one.digests_equal and one.dropped == 0 for one in self.seen)
        return rounds and self.run.same_as_plain is True and self.troubled == 0

    def as_json(self) -> dict[str, Any]:
        """Return everything as plain data."""
        return self.run.as_json() | {
            "format": "secemb/1 demo",
            "good": self.good,
            "seconds": round(self.seconds, 3),
            "rounds": [{**asdict(one), "dropped": one.dropped} for one in self.seen],
            "bytes_per_device": self.traffic.as_json(),
            "servers": [asdict(one) for one in self.servers],
            "sum_zeros": self.zeros,
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
    words = "[bold green]All as it must be[/bold green]" if ending.good else "[bold red]FAILED[/bold red]"
    console.print(f"{words} in {ending.seconds:.0f} seconds.")


def comparison(ending: Ending) -> list[tuple[str, str, str, str]]:
    """Return the private run against a plain one."""
    run, traffic = ending.run, ending.traffic
    plain = last_rmse(run.plain or [])
    verdict = "the same model, bit for bit" if run.same_as_plain else "NOT the same model"
    return [
        ("fleet RMSE at the end", _error(run.rmse), _error(plain), verdict),
        _bytes("a device sends", traffic.sent, traffic.full_sent),
        _bytes("a device receives", traffic.received, traffic.full_received),
    ]


def sights(ending: Ending) -> list[tuple[str, str, str]]:
    """Return what each server saw, a line for each thing."""
    first, second = ending.servers
    return [
        ("sessions", f"{first.sessions:,}", f"{second.sessions:,}"),
        ("keys of a session", _size(first.keys_bytes), _size(second.keys_bytes)),
        ("update of a session", _size(first.update_bytes), _size(second.update_bytes)),
        ("different lengths", str(first.lengths), str(second.lengths)),
        ("ones among the bits of its sum", _share(first.share_ones), _share(second.share_ones)),
        ("items, ratings, gradients in the clear", "none", "none"),
        ("processor time", f"{first.cpu_seconds:.1f} s", f"{second.cpu_seconds:.1f} s"),
    ]


def learned(ending: Ending) -> str:
    """Return what both servers learned together about what people have rated."""
    sessions = ending.run.scenario.cohort
    zeros = "" if ending.zeros is None else f" {ending.zeros:.0%} of its numbers are zero, which neither share shows."
    return f"Of what people have rated the two learned together one sum over {sessions} devices a round.{zeros}"


def _bytes(name: str, mine: int, whole: int) -> tuple[str, str, str, str]:
    factor = whole / max(mine, 1)
    words = f"{factor:.1f} times less than the whole table" if factor > 1 else "so small a table is better sent whole"
    return name, _size(mine), _size(whole), words


def _size(count: int) -> str:
    return f"{count / 1e3:,.1f} kB"


def _share(value: float | None) -> str:
    return "-" if value is None else f"{value:.2%}"


def _error(value: float | None) -> str:
    return "-" if value is None else f"{value:.4f}"
