"""The course of a demonstration: rounds of real devices against two real services, watched by both operators."""

import asyncio
from dataclasses import dataclass, field
from pathlib import Path
from time import perf_counter

from secemb_sdk.home.receipts import Receipt
from secemb_tools.demo.evidence import ServerView, total_of, traffic_of, view_of
from secemb_tools.demo.fleet import Fleet, fleet_of
from secemb_tools.demo.live import View
from secemb_tools.demo.summary import Ending
from secemb_tools.demo.watch import Seen, Watch
from secemb_tools.local import Pair, Service
from secemb_tools.simulation.engine import Engine, Row
from secemb_tools.simulation.rounds import PLAIN
from secemb_tools.simulation.run import Run
from secemb_tools.simulation.scenario import ScenarioWorld
from secemb_tools.transport import Transport

_LOOK_SECONDS = 0.5  # between two looks at whether both servers are still there


@dataclass(slots=True)
class Course:
    """What has happened so far."""

    world: ScenarioWorld
    pair: Pair
    transport: Transport
    seen: list[Seen] = field(default_factory=list)
    rows: list[Row] = field(default_factory=list)
    receipts: list[Receipt] = field(default_factory=list)
    troubled: int = 0

    async def run(self, view: View, folder: Path) -> None:
        """Run all rounds; the servers must be up, and stay it."""
        rounds = asyncio.ensure_future(self._rounds(view, folder))
        try:
            while not rounds.done():
                await asyncio.wait({rounds}, timeout=_LOOK_SECONDS)
                self.pair.check()
            rounds.result()
        finally:
            rounds.cancel()
            await asyncio.wait({rounds})

    async def _rounds(self, view: View, folder: Path) -> None:
        watch = Watch(self.pair)
        try:
            async with fleet_of(self.world, self.pair.urls, folder, self.transport) as fleet:
                for number in range(self.world.scenario.rounds):
                    await self._round(number, fleet, watch, view)
        finally:
            await watch.aclose()

    async def _round(self, number: int, fleet: Fleet, watch: Watch, view: View) -> None:
        await watch.until_open(number)
        part = await fleet.take_part(number)
        seen = await watch.until_ended(number)
        self.seen.append(seen)
        self.rows.append(row_of(seen))
        self.receipts += part.receipts
        self.troubled += part.troubled
        moved = sum(sum(one.sent) + sum(one.received) for one in part.receipts) / max(len(part.receipts), 1)
        view.show(seen, kilobytes=moved / 1e3)

    async def end(self, started: float) -> Ending:
        """Compare with a plain run from the same seeds, and look at what both servers hold."""
        plain = await asyncio.to_thread(run_plainly, self.world)
        seconds = perf_counter() - started
        run = Run(
            name="demo",
            scenario=self.world.scenario,
            way="http",
            task_id=self.world.task.task_id.hex(),
            rows=self.rows,
            plain=plain,
            seconds=seconds,
        )
        return Ending(
            run=run,
            seen=self.seen,
            transport=self.transport,
            ratings=self.world.ratings_a_device(),
            traffic=traffic_of(self.world.task, self.receipts),
            servers=[self._view_of(server) for server in self.pair.servers],
            total=total_of([server.folder for server in self.pair.servers], self.pair.task),
            troubled=self.troubled,
            seconds=seconds,
        )

    def _view_of(self, server: Service) -> ServerView:
        return view_of(server.folder, self.pair.task, role=server.role, cpu_seconds=server.cpu_seconds())


def row_of(seen: Seen) -> Row:
    """Return a round as a run's table has it."""
    return Row(
        round=seen.round,
        kind=seen.kind,
        sessions=seen.matched,
        version=seen.version,
        digest=seen.digest,
        rmse=seen.figures.get("rmse"),
        mae=seen.figures.get("mae"),
    )


def run_plainly(world: ScenarioWorld) -> list[Row]:
    """Return the table of the same rounds without any secrecy."""
    engine = Engine(world, way=PLAIN)
    return [engine.step() for _ in range(world.scenario.rounds)]
