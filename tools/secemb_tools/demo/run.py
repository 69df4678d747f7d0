"""The rounds of a demonstration: real devices against two real servers, watched by both operators."""

import asyncio
from dataclasses import dataclass, field
from pathlib import Path
from time import perf_counter

from secemb_sdk.home.receipts import Receipt
from secemb_sdk.models import registry
from secemb_shared.messages.spec import TRAIN
from secemb_tools.demo.evidence import ServerView, corner_of, total_of, traffic_of, view_of
from secemb_tools.demo.live import LiveView
from secemb_tools.demo.person import Person, person_of
from secemb_tools.demo.result import DemoResult, baselines_of
from secemb_tools.local import Pair, Service
from secemb_tools.local.fleet import Fleet, fleet_of
from secemb_tools.local.rounds import RoundRecord, RoundWatcher
from secemb_tools.simulation.engine import Engine, Row
from secemb_tools.simulation.rounds import PLAIN
from secemb_tools.simulation.run import Run
from secemb_tools.simulation.scenario import ScenarioWorld
from secemb_tools.transport import Transport


@dataclass(slots=True)
class DemoRun:
    """The rounds so far."""

    world: ScenarioWorld
    pair: Pair
    transport: Transport
    rounds: list[RoundRecord] = field(default_factory=list)
    rows: list[Row] = field(default_factory=list)
    receipts: list[Receipt] = field(default_factory=list)
    troubled: int = 0
    person: Person | None = None  # one of the people who have taken part

    async def run(self, view: LiveView, folder: Path) -> None:
        """Run all rounds; the servers must be running, and keep running."""
        await self.pair.supervise(self._run_all(view, folder))

    async def _run_all(self, view: LiveView, folder: Path) -> None:
        watcher = RoundWatcher(self.pair)
        try:
            async with fleet_of(self.world, self.pair, folder, self.transport) as fleet:
                for number in range(self.world.scenario.all_rounds):
                    await self._run_one(number, fleet, watcher, view)
                view.say("a device recommends")
                if not registry.find(self.world.scenario.model).has_texts:  # a list of words means little to users
                    self.person = await person_of(self.world, fleet, self._typical_person())
        finally:
            await watcher.aclose()

    async def _run_one(self, number: int, fleet: Fleet, watcher: RoundWatcher, view: LiveView) -> None:
        await watcher.until_open(number)
        part = await fleet.take_part(self.world.schedule.people_of(number).tolist(), number=number)
        record = await watcher.until_ended(number)
        self.rounds.append(record)
        self.rows.append(row_of(record))
        self.receipts += part.receipts
        self.troubled += part.troubled
        moved = sum(sum(one.sent) + sum(one.received) for one in part.receipts) / max(len(part.receipts), 1)
        view.show(record, kilobytes=moved / 1e3)

    def _typical_person(self) -> int:
        """Return the person with the most ratings among those who trained last."""
        schedule = self.world.schedule
        number = max(one for one in range(self.world.scenario.all_rounds) if schedule.kind_of(one) == TRAIN)
        people: list[int] = schedule.people_of(number).tolist()
        return max(people, key=lambda person: len(self.world.ratings_of(person)))

    async def finish(self, started: float) -> DemoResult:
        """Compare with a plain run from the same seeds, and examine the data that both servers have stored."""
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
        folders = [server.folder for server in self.pair.servers]
        return DemoResult(
            run=run,
            rounds=self.rounds,
            transport=self.transport,
            ratings=self.world.ratings_a_device(),
            traffic=traffic_of(self.world.task, self.receipts),
            servers=[self._view_of(server) for server in self.pair.servers],
            total=total_of(folders, self.pair.task),
            troubled=self.troubled,
            seconds=seconds,
            baselines=baselines_of(self.world),
            person=self.person,
            corner=corner_of(folders, self.pair.task),
        )

    def _view_of(self, server: Service) -> ServerView:
        return view_of(server.folder, self.pair.task, role=server.role, cpu_seconds=server.cpu_seconds())


def row_of(record: RoundRecord) -> Row:
    """Return a round as a row of a run's table."""
    return Row(
        round=record.round,
        kind=record.kind,
        sessions=record.matched,
        version=record.version,
        digest=record.digest,
        figures=dict(record.figures),
        sums=list(record.sums),
        window=dict(record.window),
    )


def run_plainly(world: ScenarioWorld) -> list[Row]:
    """Return the table of the same rounds without any protection."""
    engine = Engine(world, way=PLAIN)
    return [engine.step() for _ in range(world.scenario.all_rounds)]
