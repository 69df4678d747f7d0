"""Two servers with several tasks in one process: each task of it can be driven like a pair of its own."""

import asyncio
import hashlib
import shutil
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import httpx
from tests.integration.databases import empty_ledger
from tests.simulation.faults import FaultyLine, Fuse, FusedDatabase, FusedModels, FusedShares, Line, LostError
from tests.simulation.pair import (
    AT_ONCE,
    IDENTITY,
    IDENTITY0,
    PATIENCE,
    PEER_TOKEN,
    TICKET_KEY,
    Clock,
    Pair,
    new_folder,
)

from secemb_party.compute.threads import ThreadCompute, Workers
from secemb_party.http.dispatch import Dispatch, Find, of_device, of_operator, of_peer
from secemb_party.http.task_control_routes import task_control_routes
from secemb_party.ledger import Ledger
from secemb_party.metrics import Metrics
from secemb_party.operators import Operators, Order
from secemb_party.parts import Parts
from secemb_party.room import Memory
from secemb_party.service import Party
from secemb_party.storage import Shape
from secemb_party.storage.copies import open_catalogue
from secemb_party.tenancy.host import Host, Hosted
from secemb_party.tenancy.places import TaskPlace, TaskPlaces
from secemb_server0.app import Server0, create_server0
from secemb_server0.peer import HttpPeer, HttpRelayLine
from secemb_server0.peer_transport import PeerClient
from secemb_server1.app import create_server1
from secemb_server1.relay_keys import RelayKeys
from secemb_shared.catalogue import FILE
from secemb_shared.messages import TaskSpec

ORDER = Order("tests", "a test")


class TownTask(Pair):
    """One task of the two servers, as a pair."""

    town: "Town"

    def meet(self) -> None:
        """Look up what the servers run now."""
        task_id = self.task.task_id
        self.parties = {
            role: host.running[task_id].party for role, host in enumerate(self.town.hosts) if task_id in host.running
        }
        if (server0 := self.town.servers0.get(task_id)) is not None:
            self.server0 = server0

    async def crash(self, role: int) -> None:
        await self.town.crash(role)

    async def send(self, role: int, request: httpx.Request) -> httpx.Response | None:
        return await self._carry(role, httpx.ASGITransport(self.town.devices[role]), request)

    async def deliver(self, request: httpx.Request) -> httpx.Response:
        return await self.town.deliver(request)


@dataclass
class Town:
    """Two servers, and the tasks that they host."""

    folder: Path
    first: TaskSpec
    operators: Operators | None = None
    catalogue: bytes | None = None
    clock: Clock = field(default_factory=Clock)
    line: Line = field(default_factory=Line)
    hosts: list[Host] = field(default_factory=list)
    devices: list[Dispatch] = field(default_factory=list)
    desks: list[Dispatch] = field(default_factory=list)
    fuses: list[Fuse] = field(default_factory=lambda: [Fuse(), Fuse()])
    servers0: dict[bytes, Server0] = field(default_factory=dict)
    tasks: dict[bytes, TownTask] = field(default_factory=dict)

    async def open(self) -> "Town":
        """Start both servers with the task of their settings."""
        (self.folder / "task.json").write_bytes(self.first.encode())
        if self.catalogue is not None:
            (self.folder / FILE).write_bytes(self.catalogue)
        self.hosts = [await self._host(role) for role in (0, 1)]
        self.devices = [self._dispatch(role, of_device, lambda one: one.devices) for role in (0, 1)]
        self.desks = [self._desk(role) for role in (0, 1)]
        self._meet()
        return self

    def _desk(self, role: int) -> Dispatch:
        host = self.hosts[role]
        own = task_control_routes(host, self.operators) if self.operators is not None else None
        return Dispatch(host, "desk", find=of_operator, app_of=lambda one: one.operator, own=own, ready=host.readiness)

    def _dispatch(self, role: int, find: Find, app_of: Callable[[Hosted], object]) -> Dispatch:
        return Dispatch(self.hosts[role], "town", find=find, app_of=app_of)  # type: ignore[arg-type]

    def of(self, task: TaskSpec) -> TownTask:
        """Return a task, to be driven like a pair."""
        found = self.tasks.get(task.task_id)
        if found is None:
            found = self.tasks[task.task_id] = TownTask(self.folder / task.name, task, clock=self.clock, line=self.line)
            found.town, found.fuses = self, self.fuses
            found.folder.mkdir()
        found.meet()
        return found

    async def start(self, task: TaskSpec, *roles: int) -> TownTask:
        """Let the operators of these servers, or of both, start a task."""
        for role in roles or (1, 0):
            await self.hosts[role].add(task.encode(), None, ORDER)
        self._meet()
        return self.of(task)

    def _meet(self) -> None:
        for one in self.tasks.values():
            one.meet()

    async def crash(self, role: int) -> None:
        """Forget everything that one server has in memory and start it again."""
        self.fuses[role].dead = True
        await self.hosts[role].close()
        fuse = self.fuses[role]
        fuse.dead, fuse.writes = False, None
        self.hosts[role] = await self._host(role)
        self.devices[role] = self._dispatch(role, of_device, lambda one: one.devices)
        self.desks[role] = self._desk(role)
        self._meet()

    async def deliver(self, request: httpx.Request) -> httpx.Response:
        """Carry a call to server 1."""
        app = self._dispatch(1, of_peer, lambda one: one.peer)
        answer = await httpx.ASGITransport(app).handle_async_request(request)
        await answer.aread()
        if self.fuses[1].dead:
            await self.crash(1)
            raise LostError("server 1 died")
        return answer

    async def close(self) -> None:
        """Close both servers."""
        for host in self.hosts:
            await host.close()

    async def _host(self, role: int) -> Host:
        folder, fuse = self.folder / f"server{role}", self.fuses[role]
        folder.mkdir(exist_ok=True)
        path = folder / "ledger.db"
        if not path.exists():
            path.write_bytes(await asyncio.to_thread(empty_ledger))
        opened = await Ledger.open(f"sqlite:///{path}", migrate=False)
        ledger, workers, metrics = Ledger(FusedDatabase(opened._database, fuse)), Workers(threads=1), Metrics()

        def models_of(task: TaskSpec) -> FusedModels:
            models = FusedModels(folder / "models", task.task_id, Shape.of(task))
            models.fuse = fuse
            return models

        def parts(place: TaskPlace) -> Parts:
            shares = FusedShares(folder)
            shares.fuse = fuse
            return Parts(
                role=role,
                task=place.task,
                ledger=ledger,
                models=models_of(place.task),
                identity=IDENTITY if role else IDENTITY0,
                store_of=models_of,
                shares=shares,
                workers=workers,
                memory=Memory(),
                compute=ThreadCompute(role, workers),
                ticket_key=TICKET_KEY.public_key(),
                scratch=folder,
                catalogue=open_catalogue(place.task, place.catalogue),
                metrics=metrics.of_task(place.task.task_id),
                clock=self.clock,
                steady=self.clock,
                keep_versions=3,
            )

        async def close() -> None:
            workers.close()
            await ledger.close()

        files = TaskPlaces(folder, self.folder / "task.json")
        host = Host(
            ledger,
            files,
            make_parts=parts,
            assemble=self._assemble0 if role == 0 else self._assemble1,
            metrics=metrics,
            clock=self.clock,
            close=close,
        )
        await host.open()
        return host

    def _assemble0(self, party: Party) -> Hosted:
        task_id = party.task.task_id
        client = PeerClient(
            "https://server1",
            transport=FaultyLine(self.line, self.deliver),
            bearer=lambda: PEER_TOKEN,
            timeout=httpx.Timeout(5.0),
        )
        server = self.servers0[task_id] = create_server0(
            party,
            HttpPeer(client, party.metrics, party.peer_clock, task_id, scratch=party.scratch),
            TICKET_KEY,
            open_enrolment=True,
            patience=PATIENCE,
            operators=self.operators,
            relay_line=HttpRelayLine(client, party.metrics, party.peer_clock, task_id),
            relay_limits=AT_ONCE,
        )
        return Hosted(party=party, devices=server.devices, operator=server.operator, ready=party.readiness)

    def _assemble1(self, party: Party) -> Hosted:
        keys = RelayKeys(self.folder / "server1" / "relay-keys.json", IDENTITY, party.task.task_id)
        token_hash = hashlib.sha256(PEER_TOKEN.encode()).digest()
        server = create_server1(
            party,
            lambda: [token_hash],
            patience=PATIENCE,
            operators=self.operators,
            relay_keys=keys if party.task.relays else None,
        )
        return Hosted(
            party=party, devices=server.devices, operator=server.operator, peer=server.peer, ready=party.readiness
        )


@asynccontextmanager
async def a_town(
    first: TaskSpec, operators: bytes | None = None, *, catalogue: bytes | None = None
) -> AsyncIterator[Town]:
    """Run two servers in a folder of their own."""
    folder = new_folder()
    listed = folder / "operators.json"
    if operators is not None:
        listed.write_bytes(operators)
    town = Town(folder, first, Operators(listed) if operators is not None else None, catalogue)
    try:
        yield await town.open()
    finally:
        await town.close()
        shutil.rmtree(folder)
