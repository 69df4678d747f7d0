"""Helper devices: simulated people who fill a round as soon as a real device has joined it."""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from secemb_shared.catalogue import digest_of
from secemb_tools.errors import RoundError
from secemb_tools.local import Pair
from secemb_tools.local.fleet import Fleet, fleet_of
from secemb_tools.local.rounds import RoundRecord, RoundWatcher
from secemb_tools.simulation.scenario import ScenarioWorld
from secemb_tools.simulation.world import World
from secemb_tools.transport import Transport

_LOOK_SECONDS = 0.1  # between two looks at the current round
_GRACE_SECONDS = 0.5  # after the first real device joins, for others that join at the same time
_ROUNDS = 1_000_000
# A round that nobody joins is aborted after the first time. A device that joins and does not return delays the
# others until the second.
_JOIN_SECONDS, _UPLOAD_SECONDS = 60, 90

Say = Callable[[str], None]


def with_rounds_to_go(world: ScenarioWorld) -> ScenarioWorld:
    """Return the world with practically unlimited rounds, and with the titles of its items.

    A round closes as soon as it is full.
    """
    task = replace(
        world.task,
        rounds=_ROUNDS,
        schedule="constant",  # falling rates would need a last round
        join_seconds=_JOIN_SECONDS,
        upload_seconds=_UPLOAD_SECONDS,
        catalogue=digest_of(world.ratings.catalogue.encode()) if len(world.ratings.catalogue) else "",
    )
    return replace(world, task=task)


@dataclass(frozen=True, kw_only=True)
class Helpers:
    """Fills every round that a real device has joined with as many simulated devices as it needs."""

    world: World
    pair: Pair
    folder: Path  # of the helpers' homes
    transport: Transport = Transport.RELAYED
    tokens: Sequence[str] = ()  # one for each device of a round; none: enrolment is open

    async def warm_up(self, rounds: int) -> None:
        """Run the task's first rounds with helpers only, so that there is something to recommend."""
        async with self._at_work() as (fleet, watcher):
            for number in range(rounds):
                await watcher.until_open(number)
                await fleet.take_part(self.world.schedule.people_of(number).tolist())
                await watcher.until_ended(number)

    async def help(self, say: Say) -> None:
        """Fill each round that a real device has joined, until cancelled; report how it ended."""
        done = -1
        async with self._at_work() as (fleet, watcher):
            while True:
                view = await watcher.newest()
                if view is None or view["number"] <= done or not _is_joined(view):
                    await asyncio.sleep(_LOOK_SECONDS)
                    continue
                done = view["number"]
                say(await self._fill(done, fleet, watcher))

    async def _fill(self, number: int, fleet: Fleet, watcher: RoundWatcher) -> str:
        await asyncio.sleep(_GRACE_SECONDS)
        view = await watcher.newest()
        joined = view["admitted"] if view is not None and view["number"] == number else 0
        people = self.world.schedule.people_of(number).tolist()[: self.world.task.cohort - joined]
        part = await fleet.take_part(people, patient=False)
        try:
            record = await watcher.until_ended(number)
        except RoundError as error:
            return f"{error}; a device that has joined must upload within {_UPLOAD_SECONDS} s of the round's opening"
        return _line(record, helpers=len(part.receipts))

    @asynccontextmanager
    async def _at_work(self) -> AsyncIterator[tuple[Fleet, RoundWatcher]]:
        watcher = RoundWatcher(self.pair)
        try:
            async with fleet_of(self.world, self.pair, self.folder, self.transport, self.tokens) as fleet:
                yield fleet, watcher
        finally:
            await watcher.aclose()


def _is_joined(view: dict[str, Any]) -> bool:
    return bool(view["state"] == "open" and view["admitted"] > 0)


def _line(record: RoundRecord, *, helpers: int) -> str:
    yours = record.matched - helpers
    what = f"version {record.version} published" if record.kind == "train" else _figures(record)
    return f"round {record.round} {record.kind}: {yours} of yours, {helpers} helpers, {record.seconds:.1f} s; {what}"


def _figures(record: RoundRecord) -> str:
    rmse = record.figures.get("rmse")
    return "evaluated" if rmse is None else f"RMSE {rmse:.3f}"
