"""Rounds under attack: two real servers, honest devices of the SDK, and hostile clients."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from time import monotonic
from typing import Any

import numpy as np

from secemb_lab.attack.attacks import PROMOTION, SEATS, TOKENS, Attack
from secemb_lab.attack.clients import Target
from secemb_lab.attack.hostile_process import Attacker, hostile_process
from secemb_lab.attack.observation import Judge, counters_of, difference, tokens_of
from secemb_party.http.health import FRESH_SECONDS
from secemb_sdk.http import HttpTransport
from secemb_tools.datasets.made_up import make_ratings
from secemb_tools.datasets.splits import split_per_user
from secemb_tools.errors import RoundError
from secemb_tools.local import Pair
from secemb_tools.local.fleet import Fleet, Seat
from secemb_tools.local.rounds import RoundWatcher
from secemb_tools.operate.settings import settings_at
from secemb_tools.operate.tokens import create_all
from secemb_tools.simulation.recipes import Recipe
from secemb_tools.simulation.world import InTurn, World
from secemb_tools.transport import Transport

HONEST = 8  # devices of a round
PEOPLE, ITEMS, MOST = 48, 600, 24
JOIN_SECONDS, UPLOAD_SECONDS = 5, 60
DEVICE_SECONDS = 60.0  # for an honest device to be admitted and to finish
ROUND_SECONDS = 120.0  # for a round to open or to end
_SEED = 1
_PAUSE = 0.02
_SETTLED = 0.1  # seconds


@dataclass(slots=True, kw_only=True)
class Figures:
    """The results of some rounds under an attack."""

    attack: str
    kind: str
    rounds: int  # that ended
    published: int
    devices: int  # attempts of honest ones to take part
    finished: int
    device_seconds: float | None  # from the first request to join to the receipt of an honest device, median
    round_seconds: float  # from opening to end, median
    latency_ratio: float | None = None  # ratio of device_seconds to that without an attack
    rows_touched: int = 0  # rows that no honest device has rated
    rank: tuple[int, int] | None = None  # of the promoted item, before and after
    rmse: float = 0.0
    rmse_beyond: float | None = None  # the increase over the value without an attack
    memory_growth: list[int] = field(default_factory=list)  # bytes, of both servers
    seen: list[dict[str, int]] = field(default_factory=list)  # each operator's counters
    tokens: dict[str, dict[str, int]] = field(default_factory=dict)  # of honest and hostile ones, at server 0


def make_world(rounds: int) -> tuple[World, Judge]:
    """Return honest people with their devices, and the judge of the model."""
    data = split_per_user(make_ratings(people=PEOPLE, items=ITEMS, most=MOST, seed=_SEED), seed=_SEED)
    recipe = Recipe.by_rule(
        data.train,
        cohort=HONEST + SEATS,
        capacity=MOST,
        dimension=0,  # biases only: few people with few ratings would memorise vectors
        rounds=max(rounds, 100),
        row_pull=0.0,  # pulls would change every row in every round
        bias_pull=0.0,
    )
    task = recipe.task(data.train, seed=_SEED, min_cohort=2, join_seconds=JOIN_SECONDS, upload_seconds=UPLOAD_SECONDS)
    schedule = InTurn(people=PEOPLE, cohort=HONEST, smallest=HONEST, seed=_SEED)
    world = World(ratings=data.train, recipe=recipe, task=task, schedule=schedule, seed=_SEED)
    return world, Judge(world, data)


class Stage:
    """A running pair and its honest devices."""

    def __init__(self, pair: Pair, world: World, judge: Judge, honest: list[Fleet], attacker: Attacker) -> None:
        self._pair, self._world, self._judge, self._honest, self._attacker = pair, world, judge, honest, attacker
        self._watcher = RoundWatcher(pair)
        self._turn, self._number = 0, -1

    async def run(self, attack: Attack, rounds: int) -> Figures:
        """Run rounds under an attack, which continues until the last one is sealed, and joins no round after that."""
        servers = self._pair.servers
        counters, memory = [counters_of(one) for one in servers], [one.memory_bytes() for one in servers]
        read, tokens = monotonic(), await tokens_of(servers[0])
        before, item = self._judge.newest(self._pair), self._judge.unrated[0]
        numbers: list[int] = []
        spent: list[float | None] = []
        first = await self._until_open()
        with self._attacker.attacking(attack.name, first + rounds - 1):
            for _ in range(rounds):
                spent += await self._let_in_all()
                numbers.append(self._number)
                await self._until(self._number, lambda found: found["state"] != "open")
        ended = [await self._until(one, lambda found: found["ended_at"] is not None) for one in numbers]
        # Servers cache their metrics for this long; server 1 may count the last round after server 0 has ended it.
        await asyncio.sleep(max(_SETTLED, read + FRESH_SECONDS - monotonic()))
        after = self._judge.newest(self._pair)
        finished = [one for one in spent if one is not None]
        return Figures(
            attack=attack.name,
            kind=attack.kind,
            rounds=len(ended),
            published=sum(one["state"] == "published" for one in ended),
            devices=len(spent),
            finished=len(finished),
            device_seconds=float(np.median(finished)) if finished else None,
            round_seconds=float(np.median([one["ended_at"] - one["opened_at"] for one in ended])),
            rows_touched=self._judge.rows_touched(before, after),
            rank=(self._judge.rank(before, item), self._judge.rank(after, item)) if attack.name == PROMOTION else None,
            rmse=self._judge.rmse(after),
            memory_growth=[one.memory_bytes() - old for one, old in zip(servers, memory, strict=True)],
            seen=[dict(counters_of(one) - old) for one, old in zip(servers, counters, strict=True)],
            tokens=difference(await tokens_of(servers[0]), tokens),
        )

    async def aclose(self) -> None:
        """Close the operators' connections."""
        await self._watcher.aclose()

    async def _let_in_all(self) -> list[float | None]:
        """Let the honest devices of the next round take part; return how many seconds each took."""
        self._number = await self._until_open()
        people = self._world.schedule.people_of(self._turn).tolist()
        self._turn += 1
        pairs = zip(self._honest, people, strict=True)
        return await asyncio.gather(*(self._take_part(fleet, person) for fleet, person in pairs))

    async def _take_part(self, fleet: Fleet, person: int) -> float | None:
        """Return how many seconds an honest device took, or None if it did not finish."""
        start = monotonic()
        try:
            async with asyncio.timeout(DEVICE_SECONDS):
                found = await fleet.take_part([person])
        except TimeoutError:
            return None
        return monotonic() - start if found.receipts else None

    async def _until_open(self) -> int:
        end = monotonic() + ROUND_SECONDS
        while monotonic() < end:
            self._pair.check()
            newest = await self._watcher.newest()
            if newest is not None and newest["state"] == "open" and newest["number"] > self._number:
                return int(newest["number"])
            await asyncio.sleep(_PAUSE)
        raise RoundError(f"no round opened in {ROUND_SECONDS:.0f} seconds; see the servers' logs")

    async def _until(self, number: int, reached: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
        end = monotonic() + ROUND_SECONDS
        while monotonic() < end:
            self._pair.check()
            found: dict[str, Any] = await asyncio.to_thread(self._pair.servers[0].ask, f"rounds/{number}")
            if reached(found):
                return found
            await asyncio.sleep(_PAUSE)
        raise RoundError(f"round {number} did not end in {ROUND_SECONDS:.0f} seconds; see the servers' logs")


@asynccontextmanager
async def a_stage(folder: Path, attack: Attack, rounds: int) -> AsyncIterator[Stage]:
    """Start two servers with the settings that an attack needs."""
    world, judge = make_world(rounds)
    pair = Pair(
        folder,
        world.task,
        evaluate_every=attack.evaluate_every,
        variables={"SECEMB_ROUNDS__SURVEY_FIRST": str(attack.survey_first).lower()},
        open_enrolment=False,
    )
    names = [f"honest {one}" for one in range(HONEST)] + [f"hostile {one}" for one in range(TOKENS)]
    try:
        for pause in pair.starting():
            await asyncio.sleep(pause)
        made = await create_all(settings_at(pair.servers[0].folder), names)
        tokens = [one["token"] for one in made]
        target = Target(pair.urls, pair.task, tuple(tokens[HONEST:]), tuple(judge.unrated))
        async with AsyncExitStack() as stack:
            attacker = stack.enter_context(hostile_process(target))
            honest = []
            for token in tokens[:HONEST]:
                seat = Seat(HttpTransport(pair.urls), token)
                stack.push_async_callback(seat.connection.aclose)
                honest.append(Fleet(world, pair, folder / "devices", way=Transport.DIRECT, seats=[seat]))
            stage = Stage(pair, world, judge, honest, attacker)
            stack.push_async_callback(stage.aclose)
            yield stage
    finally:
        pair.stop()
