"""Two servers in one process over ASGI, with a clock that tests turn and faults that tests plant."""

import asyncio
import hashlib
import os
import shutil
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import fastapi.dependencies.models
import httpx
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from tests.integration.databases import empty_ledger
from tests.simulation.faults import (
    CrashedError,
    FaultyLine,
    Fuse,
    FusedDatabase,
    FusedModels,
    FusedShares,
    Line,
    LostError,
)
from tests.simulation.faulty_compute import FaultyCompute, Outage

from secemb_party.compute import ComputeUnavailableError
from secemb_party.compute.threads import ThreadCompute, Workers
from secemb_party.control import Control
from secemb_party.errors import ControlRefusedError, PeerUnavailableError
from secemb_party.http.request_body import Patience
from secemb_party.ledger import Added, Ledger, NewToken
from secemb_party.metrics import Metrics
from secemb_party.operators import Operators, Order
from secemb_party.parts import Parts
from secemb_party.service import Party
from secemb_party.storage import Shape
from secemb_party.storage.copies import open_catalogue
from secemb_server0.app import Server0, create_server0
from secemb_server0.conductor import Decision, Idle, Paused, Wait
from secemb_server0.kinds import always_train
from secemb_server0.panel import Panel
from secemb_server0.peer import HttpPeer, HttpRelayLine
from secemb_server0.peer_transport import PeerClient
from secemb_server0.relay import Limits
from secemb_server0.seats import SeatRules
from secemb_server1.app import Server1, create_server1
from secemb_server1.relay_keys import RelayKeys
from secemb_shared.catalogue import FILE, digest_of
from secemb_shared.messages import TaskSpec

PEER_TOKEN = "peer token of the tests"
TICKET_KEY = Ed25519PrivateKey.from_private_bytes(bytes(range(32)))
IDENTITY = Ed25519PrivateKey.from_private_bytes(bytes(range(1, 33)))  # server 1's, as relayed tasks name it
IDENTITY0 = Ed25519PrivateKey.from_private_bytes(bytes(range(2, 34)))
RELAYED: dict[str, Any] = {"relay_key": IDENTITY.public_key().public_bytes_raw().hex()}
SUCCEEDED: dict[str, Any] = {**RELAYED, "identity0": IDENTITY0.public_key().public_bytes_raw().hex()}
PATIENCE = Patience()
AT_ONCE = Limits(gather_seconds=0.0, pause_seconds=0.0)


def a_task(**changes: object) -> TaskSpec:
    """Return a small task whose sums can be read by eye: one step of SGD subtracts the mean update."""
    fields: dict[str, object] = {
        "name": "simulation",
        "items": 24,
        "row_width": 2,
        "dense_size": 2,
        "capacity": 4,
        "tables": 3,
        "bins": 4,
        "ring_bits": 32,
        "fraction_bits": 0,
        "bound": 2**10,
        "cohort": 4,
        "min_cohort": 2,
        "rounds": 1000,
        "join_seconds": 10,
        "upload_seconds": 30,
        "optimiser": "sgd",
        "guard": "0",
        "row_rate": "1",
        "bias_rate": "1",
        "dense_rate": "1",
        "schedule": "constant",
        "initial_scale": "0",
    }
    return TaskSpec(**(fields | changes))  # type: ignore[arg-type]


@dataclass
class Clock:
    """A clock that stands still until it is turned."""

    now: float = 1000.0

    def __call__(self) -> float:
        return self.now


@dataclass
class Pair:
    """Both servers, their folders, the line between them and what is about to go wrong."""

    folder: Path
    task: TaskSpec = field(default_factory=a_task)
    clock: Clock = field(default_factory=Clock)
    line: Line = field(default_factory=Line)
    open_enrolment: bool = True
    choose_kind: Callable[[int], str] = always_train
    patience: Patience = PATIENCE
    relay_limits: Limits = AT_ONCE
    seat_rules: SeatRules = field(default_factory=SeatRules)
    catalogue: Path | None = None
    panel: Panel | None = None
    operators: Operators | None = None
    keep_versions: int = 3
    fuses: list[Fuse] = field(default_factory=lambda: [Fuse(), Fuse()])
    outages: list[Outage] = field(default_factory=lambda: [Outage(), Outage()])  # of their engines
    parties: dict[int, Party] = field(default_factory=dict)
    damaged: bool = False  # a test has changed the files of a server

    async def start(self) -> "Pair":
        """Start both servers."""
        await self.start_server(1)
        await self.start_server(0)
        return self

    async def start_server(self, role: int) -> None:
        """Start one server from what is on disk."""
        self.fuses[role] = Fuse()
        party = self.parties[role] = await self._party(role)
        if role == 1:
            keys = RelayKeys(self.folder / "server1" / "relay-keys.json", IDENTITY, self.task.task_id)
            token_hash = hashlib.sha256(PEER_TOKEN.encode()).digest()
            self.server1: Server1 = create_server1(
                party,
                lambda: [token_hash],
                patience=self.patience,
                operators=self.operators,
                relay_keys=keys if self.task.relays else None,
            )
            return
        client = PeerClient(
            "https://server1",
            transport=FaultyLine(self.line, self.deliver),
            bearer=lambda: PEER_TOKEN,
            timeout=httpx.Timeout(5.0),
        )
        self.server0: Server0 = create_server0(
            party,
            HttpPeer(client, party.metrics, party.peer_clock, scratch=party.scratch),
            TICKET_KEY,
            open_enrolment=self.open_enrolment,
            patience=self.patience,
            operators=self.operators,
            choose_kind=self.choose_kind,
            relay_line=HttpRelayLine(client, party.metrics, party.peer_clock),
            relay_limits=self.relay_limits,
            panel=self.panel,
            seat_rules=self.seat_rules,
        )

    async def enrol(self, token: str, *, expires_at: float | None = None) -> None:
        """Let server 0 know a device's first token; its name is that of the token."""
        new = NewToken(f"name of {token}", hashlib.sha256(token.encode()).digest(), expires_at)
        assert await self.parties[0].ledger.add_tokens([new], Order("tests"), self.clock.now) == [Added.ADDED]

    async def crash(self, role: int) -> None:
        """Forget everything that one server has in memory and start it again."""
        self.fuses[role].dead = True
        await self._close(role)
        await self.start_server(role)
        await self._check_inventory(role)

    async def _check_inventory(self, role: int) -> None:
        """Nothing that a crash leaves behind is called a fault."""
        wish = await self.parties[0].ledger.open_rollback(self.task.task_id)
        if role == 1 and wish is not None:
            return  # server 1 does not know what it was asked for; server 0 asks again
        found = await self.parties[role].inventory.faults()
        assert self.damaged or not found, found

    async def stop(self) -> None:
        """Close both servers."""
        for role in self.parties:
            await self._close(role)
        # FastAPI remembers the last 4,096 route functions, and with them dozens of servers that are gone.
        for function in vars(fastapi.dependencies.models).values():
            if hasattr(function, "cache_clear"):
                function.cache_clear()

    async def step(self) -> Decision | None:
        """Let the leader do one thing; return what it was, or None if something planted came in between."""
        failed = self.outages[1].failed
        try:
            return await self.server0.leader.step()
        except PeerUnavailableError as error:
            if not isinstance(error.__cause__, LostError) and self.outages[1].failed == failed:
                self.line.broken.append(str(error))
            return None
        except ComputeUnavailableError:
            return None
        except CrashedError:
            await self.crash(0)
            return None

    async def exchange(self) -> None:
        """Let the two servers tell each other where they stand, as they do every ten seconds."""
        try:
            await self.server0.leader.exchange()
        except PeerUnavailableError as error:
            if not isinstance(error.__cause__, LostError):
                self.line.broken.append(str(error))
        except CrashedError:
            await self.crash(0)

    async def steer(self, role: int, act: Callable[[Control], Awaitable[None]]) -> bool:
        """Let an operator tell a server something; return whether it is acknowledged."""
        try:
            await act(self.parties[role].control)
        except ControlRefusedError:
            return False
        except CrashedError:
            await self.crash(role)
            return False
        return True

    async def finish(self, *, keep_outages: bool = False) -> None:
        """Drive the leader, with time going on and nothing going wrong, to the end of its round and of a rollback.

        A round that waits for devices stays open.
        """
        self.line.lose_requests = self.line.lose_responses = self.line.hold_requests = 0
        for fuse in self.fuses:
            fuse.writes = None
        for outage in self.outages if not keep_outages else []:
            outage.calls = None
        for _ in range(100):  # a session that server 1 never gets is waited for in small steps
            ledger = self.parties[0].ledger
            wish = await ledger.open_rollback(self.task.task_id)
            if wish is None and await ledger.current_round(self.task.task_id) is None:
                return
            decision = await self.step()
            if isinstance(decision, Idle | Paused):
                return  # a round without devices waits for them, or for an operator
            if isinstance(decision, Wait):
                self.clock.now = decision.until
        raise AssertionError("the round does not come to an end")

    async def send(self, role: int, request: httpx.Request) -> httpx.Response | None:
        """Carry a device's request; None if the server died over it and is up again."""
        app = (self.server1 if role else self.server0).devices
        return await self._carry(role, httpx.ASGITransport(app), request)

    async def deliver(self, request: httpx.Request) -> httpx.Response:
        """Carry a call to server 1."""
        answer = await self._carry(1, httpx.ASGITransport(self.server1.peer), request)
        if answer is None:
            raise LostError("server 1 died")
        return answer

    async def deliver_held(self) -> None:
        """Let a call arrive that server 0 has given up."""
        with suppress(LostError):
            await self.deliver(self.line.held.popleft())

    async def collect_garbage(self, role: int) -> None:
        """Let one server forget the bodies of rounds that are over."""
        try:
            await self.parties[role].ledger.forget_bodies()
        except CrashedError:
            await self.crash(role)

    async def _carry(self, role: int, transport: httpx.ASGITransport, request: httpx.Request) -> httpx.Response | None:
        failed = self.outages[role].failed
        answer = await transport.handle_async_request(request)
        await answer.aread()
        if self.fuses[role].dead:
            await self.crash(role)
            return None
        if answer.status_code == 503 and self.outages[role].failed > failed:
            assert int(answer.headers["retry-after"]) > 0
            return None if request.url.path.startswith("/v1") else answer
        if answer.status_code >= 500:
            self.line.broken.append(f"{request.url.path}: {answer.text}")
        return answer

    async def _close(self, role: int) -> None:
        party = self.parties[role]
        party.workers.close()
        await party.ledger.close()

    async def _party(self, role: int) -> Party:
        folder, fuse = self.folder / f"server{role}", self.fuses[role]
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / "ledger.db"
        if not path.exists():
            path.write_bytes(await asyncio.to_thread(empty_ledger))
        opened = await Ledger.open(f"sqlite:///{path}", migrate=False)
        ledger = Ledger(FusedDatabase(opened._database, fuse))

        def models_of(task: TaskSpec) -> FusedModels:
            found = FusedModels(folder / "models", task.task_id, Shape.of(task))
            found.fuse = fuse
            return found

        models, shares = models_of(self.task), FusedShares(folder)
        shares.fuse = fuse
        workers = Workers(threads=1)
        parts = Parts(
            role=role,
            task=self.task,
            ledger=ledger,
            models=models,
            shares=shares,
            workers=workers,
            compute=FaultyCompute(ThreadCompute(role, workers), self.outages[role]),
            ticket_key=TICKET_KEY.public_key(),
            scratch=folder,
            identity=IDENTITY if role else IDENTITY0,
            store_of=models_of,
            catalogue=open_catalogue(self.task, self.catalogue) if self.catalogue is not None else None,
            metrics=Metrics().of_task(self.task.task_id),
            clock=self.clock,
            steady=self.clock,
            keep_versions=self.keep_versions,
        )
        party = Party(parts)
        await party.start()
        return party


def new_folder() -> Path:
    """Return an empty folder, in memory where there is such a place: thousands of rounds need no disk."""
    memory = Path("/dev/shm")
    return Path(tempfile.mkdtemp(prefix="secemb-", dir=memory if os.access(memory, os.W_OK) else None))


@asynccontextmanager
async def a_pair(
    *,
    open_enrolment: bool = True,
    choose_kind: Callable[[int], str] = always_train,
    patience: Patience = PATIENCE,
    relay_limits: Limits = AT_ONCE,
    seat_rules: SeatRules | None = None,
    catalogue: bytes | None = None,
    panel: Panel | None = None,
    operators: bytes | None = None,
    keep_versions: int = 3,
    **task: object,
) -> AsyncIterator[Pair]:
    """Run a pair of servers in a folder of their own."""
    folder = new_folder()
    listed = folder / "operators.json"
    if operators is not None:
        listed.write_bytes(operators)
    if catalogue is not None:
        (folder / FILE).write_bytes(catalogue)
        task["catalogue"] = digest_of(catalogue)
    pair = Pair(
        folder,
        a_task(**task),
        open_enrolment=open_enrolment,
        choose_kind=choose_kind,
        patience=patience,
        relay_limits=relay_limits,
        seat_rules=seat_rules or SeatRules(),
        catalogue=folder / FILE if catalogue is not None else None,
        panel=panel,
        operators=Operators(listed) if operators is not None else None,
        keep_versions=keep_versions,
    )
    try:
        yield await pair.start()
    finally:
        await pair.stop()
        shutil.rmtree(folder)
