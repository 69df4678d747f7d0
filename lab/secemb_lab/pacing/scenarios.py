"""The simulated scenarios, and the figures of one run."""

import asyncio
import tempfile
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from secemb_lab.pacing.lone_server import lone_server
from secemb_lab.pacing.population import Habits, Population
from secemb_lab.pacing.timeline import Clock, Timeline
from secemb_party.ledger import RoundRecord, RoundState
from secemb_sdk.exchange import AWAY_PAUSE
from secemb_server0.pace import JOINS_PER_SECOND
from secemb_tools.operate.tasks import TaskOptions, make_task

HOUR, MINUTE = 3600.0, 60.0
_CLOSING_SECONDS = 5.0
_MIN_COHORT = 20
_AWAY = (HOUR / 2, 3 * HOUR / 2)
_BAR = 30.0  # seconds per point of a curve


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """One fleet, and the events that affect it."""

    name: str
    devices: int
    hours: float
    cohort: int = 100  # minimum and deadlines are those of docs/operating.md
    join_seconds: int = 60
    upload_seconds: int = 600
    drop_out: float = 0.0  # share of sessions that are never finished
    nights: bool = False  # devices are awake for eight hours a day
    crowd: bool = False  # all call within the SDK's longest pause; otherwise at the target rate
    away: tuple[float, float] = (0.0, 0.0)  # outage of server 1: start and end in seconds


@dataclass(frozen=True, slots=True, kw_only=True)
class Figures:
    """The results of a scenario."""

    scenario: Scenario
    rounds: int  # that ended
    published: int
    reasons: dict[str, int]  # why the others were aborted
    round_seconds: float  # from the first session to the end, median
    joins_mean: float  # requests to join per second
    joins_p99: float
    joins_peak: int
    told_p99: float  # those of them that follow a Retry-After
    told_peak: int
    in_vain: float  # share of finished sessions whose round was aborted
    sessions: int  # that counted
    contributed: float  # share of devices that took part in at least one published round
    turns: float  # the same, if they had taken turns
    dispersion: float  # variance divided by mean of the rounds per device: 0 if taking turns, 1 in a lottery
    comeback_seconds: float | None  # from the return of server 1 to the next version
    told_away: float | None  # requests to join per second that follow a Retry-After, during the outage
    curve: list[tuple[float, float]]  # minutes, and requests to join per second

    @property
    def share(self) -> float:
        """Return the share of rounds that were published."""
        return self.published / self.rounds if self.rounds else 0.0


def all_scenarios() -> list[Scenario]:
    """Return the runs of the whole report; the longest come first."""
    fleets = (1000, 100_000, 1_000_000)
    return [
        Scenario(name="awake at night only", devices=100_000, hours=27, nights=True, cohort=30),
        *(Scenario(name="undisturbed", devices=one, hours=1) for one in fleets),
        *(Scenario(name="server 1 away for an hour", devices=one, hours=2, away=_AWAY) for one in fleets),
        *(Scenario(name="all return at once", devices=one, hours=1, crowd=True) for one in fleets),
        *(
            Scenario(name="30 % drop out", devices=one, hours=hours, drop_out=0.3, upload_seconds=seconds)
            for one in fleets
            for seconds, hours in ((120, 1), (600, 4), (1800, 10))
        ),
    ]


def quick_scenarios() -> list[Scenario]:
    """Return runs that take a few seconds each."""
    return [
        Scenario(name="undisturbed", devices=1000, hours=0.35),
        Scenario(name="30 % drop out", devices=100_000, hours=0.7, drop_out=0.3, upload_seconds=120),
        Scenario(name="server 1 away for ten minutes", devices=1000, hours=0.6, away=(5 * MINUTE, 15 * MINUTE)),
        Scenario(name="all return at once", devices=1_000_000, hours=0.1, crowd=True),
    ]


def simulate(scenario: Scenario) -> Figures:
    """Run a scenario."""
    return asyncio.run(_simulate(scenario))


async def _simulate(scenario: Scenario) -> Figures:
    task = make_task(
        TaskOptions(
            name="pacing",
            items=24,
            width=2,
            capacity=4,
            clip=16,
            norm_bound=0,  # no protocol work: devices make no proofs
            cohort=scenario.cohort,
            min_cohort=_MIN_COHORT,
            rounds=1_000_000,
            join_seconds=scenario.join_seconds,
            upload_seconds=scenario.upload_seconds,
        )
    )
    arrival = AWAY_PAUSE if scenario.crowd else scenario.devices / JOINS_PER_SECOND
    habits = Habits(arrival_seconds=arrival, drop_out=scenario.drop_out, nights=scenario.nights)
    clock, seconds = Clock(), round(scenario.hours * HOUR)
    with tempfile.TemporaryDirectory(prefix="secemb-pacing-", dir=_memory()) as folder:
        async with lone_server(Path(folder), task, clock, joins_per_second=JOINS_PER_SECOND) as server:
            timeline = Timeline(
                server,
                Population(scenario.devices, habits),
                clock,
                seconds,
                closing_seconds=_CLOSING_SECONDS,
                away=scenario.away,
            )
            await timeline.run()
            rounds = await timeline.rounds()
            lost = [
                (await server.ledger.counts(one.round_id)).updates for one in rounds if one.state is RoundState.ABORTED
            ]
    return _figures(scenario, timeline, rounds, in_vain=sum(lost))


def _figures(scenario: Scenario, timeline: Timeline, rounds: Sequence[RoundRecord], *, in_vain: int) -> Figures:
    published = [one for one in rounds if one.state is RoundState.PUBLISHED]
    taken = Counter(int.from_bytes(one[:8], "big") for record in published for one in record.sealed_sessions or ())
    counts = np.zeros(scenario.devices, dtype=np.int64)
    counts[list(taken.keys())] = list(taken.values())
    mean = float(counts.mean())
    # The first calls are not paced: the relevant rate is the one after them, or during them if all come at once.
    joins, told = timeline.joins, timeline.told
    begin, end = (int(one) for one in scenario.away)
    ends = [one.ended_at for one in published if one.ended_at is not None and one.ended_at >= end]
    bars = len(joins) // int(_BAR) * int(_BAR)
    curve = joins[:bars].reshape(-1, int(_BAR)).mean(axis=1)
    lengths = [one.ended_at - one.join_until + scenario.join_seconds for one in rounds if one.ended_at is not None]
    return Figures(
        scenario=scenario,
        rounds=len(rounds),
        published=len(published),
        reasons=dict(Counter(one.reason or "" for one in rounds if one.state is RoundState.ABORTED)),
        round_seconds=float(np.median(lengths or [0.0])),
        joins_mean=float(joins.mean()),
        joins_p99=float(np.percentile(joins, 99)),
        joins_peak=int(joins.max()),
        told_p99=float(np.percentile(told, 99)),
        told_peak=int(told.max()),
        in_vain=in_vain / max(1, in_vain + int(counts.sum())),
        sessions=int(counts.sum()),
        contributed=float((counts > 0).mean()),
        turns=min(1.0, mean),
        dispersion=float(counts.var() / mean) if mean else 0.0,
        comeback_seconds=min(ends) - end if end and ends else None,
        told_away=float(told[begin:end].mean()) if end else None,
        curve=[(round(place * _BAR / MINUTE, 2), round(float(one), 3)) for place, one in enumerate(curve)],
    )


def _memory() -> Path | None:
    """Return a folder in memory if available, because the ledger of a simulation need not outlive it."""
    memory = Path("/dev/shm")  # noqa: S108 - the folder made in it is private
    return memory if memory.is_dir() else None
