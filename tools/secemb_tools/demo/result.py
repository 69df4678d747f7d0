"""The result of a demonstration, as tables and as JSON, compared with models without vectors."""

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from itertools import zip_longest
from typing import Any

import numpy as np
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from secemb_shared.messages import RoundSpec
from secemb_shared.messages.spec import EVALUATE, SQUARED
from secemb_tools.datasets import Split
from secemb_tools.demo.evidence import Corner, ServerView, Total, Traffic
from secemb_tools.demo.person import Person, Suggestion
from secemb_tools.local.rounds import RoundRecord
from secemb_tools.simulation.baseline import bias_only_rmse, split_of
from secemb_tools.simulation.devices import Devices
from secemb_tools.simulation.run import Run, last_rmse
from secemb_tools.simulation.scenario import MADE_UP, Scenario, ScenarioWorld
from secemb_tools.transport import Transport

WHAT = (
    "SecEmb trains a recommender on people's devices. Two servers, run by two organisations that must not collude, add "
    "up what the devices send. Neither learns which items a person has rated, or how."
)
# Anything that a measurement cannot show is labelled as such.
EXPLANATION = (
    "Note: bytes that look random are an indication, not a proof. Section 16 of docs/reference/protocol.md "
    "argues that either server could have simulated all of its messages without knowing a single rating."
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Baselines:
    """Errors of two models with central access to all ratings."""

    global_mean: float  # predicts the mean rating
    biases: float  # predicts mean + bias of the person + bias of the item
    ratings: int  # held-out ratings that are predicted


def baselines_of(world: ScenarioWorld) -> Baselines | None:
    """Return the baselines' errors, or None if no round has evaluated or there are no ratings."""
    if world.task.loss != SQUARED:
        return None
    numbers = [one for one in range(world.scenario.all_rounds) if world.schedule.kind_of(one) == EVALUATE]
    if not numbers:
        return None
    data = held_out_of(world, numbers[-1])
    if not data.test.values.size:
        return None
    errors = data.test.values - data.train.values.mean()
    return Baselines(
        global_mean=float(np.sqrt(np.mean(errors**2))), biases=bias_only_rmse(data), ratings=data.test.values.size
    )


def held_out_of(world: ScenarioWorld, number: int) -> Split:
    """Return everybody's training data, and the data of this evaluation, which is limited by a device's capacity."""
    data, devices = split_of(world), Devices(world)
    round_ = RoundSpec(task=world.task, number=number, model_version=0, model_digest=bytes(32), kind=EVALUATE)
    measured = np.zeros(data.test.values.size, dtype=np.bool_)
    for person in world.schedule.people_of(number).tolist():
        chosen = devices[person].select(round_, world.random_bytes("session", number, person))
        measured |= (data.test.people == person) & np.isin(data.test.items, chosen.items[chosen.held_out])
    return Split(train=data.train, test=data.test.only(np.flatnonzero(measured)))


@dataclass(frozen=True, slots=True, kw_only=True)
class DemoResult:
    """All results of a demonstration."""

    run: Run
    rounds: list[RoundRecord]
    transport: Transport
    ratings: tuple[int, int]  # the minimum and maximum of any device
    traffic: Traffic
    servers: list[ServerView]
    total: Total | None  # the last sum
    troubled: int  # devices that uploaded zeros
    seconds: float
    baselines: Baselines | None = None  # None: no round has evaluated
    person: Person | None = None
    corner: Corner | None = None  # of the last shares, for the picture

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
            "baselines": None if self.baselines is None else asdict(self.baselines),
            "person": None if self.person is None else asdict(self.person),
            "sum_zeros": None if self.total is None else self.total.zeros,
            "sum_compressed": None if self.total is None else self.total.compressed,
        }


def show(console: Console, result: DemoResult) -> None:
    """Print the tables and the verdict, for 80 columns."""
    console.print(_table(("", "with SecEmb", "without", ""), comparison(result)))
    console.print(f"\n{quality_words(result)}\n")
    if result.person is not None:
        heads = (f"person {result.person.number} gave the best ratings to", "their device recommends")
        console.print(_table(heads, person_lines(result.person)), "")
    console.print(_table(("what each server saw", "server 0", "server 1"), server_views(result)))
    console.print(opened_sum(result))
    console.print(f"[dim]{EXPLANATION}[/dim]")
    words = "[bold green]All checks passed[/bold green]" if result.good else "[bold red]FAILED[/bold red]"
    console.print(f"{words} in {result.seconds:.0f} seconds.")


def _table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> Table:
    table = Table(*heads, box=SIMPLE_HEAD, show_edge=False, padding=0)
    for row in rows:
        table.add_row(*map(escape, row))
    return table


def data_words(scenario: Scenario) -> str:
    """Return the origin of the ratings."""
    if scenario.data == MADE_UP:
        return "The people, the titles and the ratings are made up."
    return f"The ratings are those of {scenario.data}; the devices are simulated."


def quality_words(result: DemoResult) -> str:
    """Return the fleet's error and those of the baselines, on the same ratings."""
    baselines, rmse = result.baselines, result.run.rmse
    if baselines is None or rmse is None:
        return "No round measured the fleet's error."
    low, high = _interval(result) or (rmse, rmse)
    return (
        f"On {baselines.ratings:,} ratings that no device trained on, the model's error (RMSE) is {rmse:.3f} (between "
        f"{low:.3f} and {high:.3f} in 95 of 100 such fleets). The error is {baselines.biases:.3f} for user and "
        f"item biases fitted to all ratings in one place, and {baselines.global_mean:.3f} for the mean rating. "
        + _verdict(low, high, min(baselines.biases, baselines.global_mean))
    )


def _interval(result: DemoResult) -> tuple[float, float] | None:
    """Return the interval of the last error over devices of the fleet."""
    found = next((one.figures for one in reversed(result.rounds) if "rmse_low" in one.figures), None)
    return None if found is None else (found["rmse_low"], found["rmse_high"])


def _verdict(low: float, high: float, best: float) -> str:
    if high < best:
        return "The model is better than both."
    if low > best:
        return "The model is not better: it needs more rounds."
    return "There are too few ratings to tell which is better."


def person_lines(person: Person) -> list[tuple[str, str]]:
    """Return a person's favourites and the device's recommendations."""
    liked = [f"{one.rating:g}  {_title(one)}" for one in person.liked]
    found = [f"{one.rating:.1f}  {_title(one)}" for one in person.recommended]
    return list(zip_longest(liked, found, fillvalue=""))


def _title(one: Suggestion) -> str:
    return (one.title or f"item {one.item}") + (f" ({one.genre})" if one.genre else "")


def comparison(result: DemoResult) -> list[tuple[str, str, str, str]]:
    """Return the comparison of the private run with a plain one."""
    run, traffic = result.run, result.traffic
    plain = last_rmse(run.plain or [])
    verdict = "the same model, bit for bit" if run.same_as_plain else "NOT the same model"
    return [
        ("RMSE at the end", _error(run.rmse), _error(plain), verdict),
        _bytes(f"a device sends, {result.transport}", traffic.sent, traffic.full_sent),
        _bytes("a device receives", traffic.received, traffic.full_received),
    ]


def server_views(result: DemoResult) -> list[tuple[str, str, str]]:
    """Return the measurements in each server's ledger and files, one line each."""
    fewest, most = result.ratings
    lines: list[tuple[str, Callable[[ServerView], str]]] = [
        ("sessions received", lambda one: f"{one.sessions:,}"),
        ("messages still stored", lambda one: f"{one.messages:,}"),
        ("keys per session", lambda one: _size(one.keys_bytes)),
        ("update per session", lambda one: _size(one.update_bytes)),
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
    """Return the sum of the two shares, which neither reveals alone."""
    words = f"Added together, the two shares are the sum over the {result.run.scenario.cohort} devices of a round."
    if result.total is None:
        return words
    zeros, left = result.total.zeros, result.total.compressed
    return (
        f"{words} In the last sum {zeros:.0%} of the numbers are zero, and zlib shrinks it to {left:.0%}. Neither "
        "share shows this on its own."
    )


def _bytes(name: str, mine: int, whole: int) -> tuple[str, str, str, str]:
    factor = whole / max(mine, 1)
    words = f"{factor:.1f} times less" if factor > 1 else "a table this small is cheaper to send whole"
    return name, _size(mine), _size(whole), words


def _size(count: int) -> str:
    return f"{count / 1e3:,.1f} kB" if count >= 1000 else f"{count} bytes"


def _share(value: float | None) -> str:
    return "-" if value is None else f"{value:.1%}"


def _seconds(value: float | None) -> str:
    return "-" if value is None else f"{value:.1f} s"


def _error(value: float | None) -> str:
    return "-" if value is None else f"{value:.3f}"
