"""One fleet and server 0 in virtual time, which jumps to the next event: a call, an upload, a step of the leader."""

import hashlib
import heapq
from dataclasses import dataclass, field
from typing import TypeAlias

import numpy as np

from secemb_lab.pacing.lone_server import LoneServer
from secemb_lab.pacing.population import Population
from secemb_party.errors import PeerUnavailableError, UnauthorizedError
from secemb_party.ledger import NewToken, RoundRecord, RoundState, Stored, Upload
from secemb_party.operators import Order
from secemb_server0.app import longer
from secemb_server0.conductor import Advance
from secemb_server0.conductor import rest as wait_seconds
from secemb_server0.join import JoinTicket, NotNow
from secemb_shared.messages import RoundSpec

Counts: TypeAlias = np.ndarray[tuple[int], np.dtype[np.int64]]
_MOMENT = 0.2  # latency of a request in seconds
_DIGEST = bytes(32)


@dataclass
class Clock:
    """Virtual time."""

    now: float = 0.0

    def __call__(self) -> float:
        """Return the time."""
        return self.now


@dataclass(frozen=True)
class Uploading:
    """A session that will be complete."""

    round_id: bytes
    session_id: bytes


@dataclass
class Timeline:
    """All pending events, and counts of past ones by second."""

    server: LoneServer
    population: Population
    clock: Clock
    seconds: int  # that are simulated
    closing_seconds: float  # from the seal to the published version
    away: tuple[float, float] = (0.0, 0.0)  # start and end of server 1's outage
    joins: Counts = field(init=False)  # (seconds,) requests to join
    told: Counts = field(init=False)  # (seconds,) those of them that follow a Retry-After
    uploads: int = 0  # sessions that became complete here

    def __post_init__(self) -> None:
        self.joins, self.told = (np.zeros(self.seconds + 1, dtype=np.int64) for _ in range(2))
        first = self.population.first_calls()
        order = np.argsort(first)
        # (time, device, whether it follows a Retry-After); a sorted list is a heap
        self._calls = [(float(first[one]), int(one), False) for one in order if first[one] < self.seconds]
        self._uploads: list[tuple[float, int, Uploading]] = []
        self._sessions = 0
        self._step_at, self._pause, self._resting = 0.0, 0.0, False

    async def run(self) -> None:
        """Run to the end."""
        while True:
            if self._resting and self.server.leader.changed.is_set():
                self._step_at = self.clock.now
            call = self._calls[0][0] if self._calls else np.inf
            upload = self._uploads[0][0] if self._uploads else np.inf
            due = min(call, upload, self._step_at)
            if due >= self.seconds:
                return
            self.clock.now = max(self.clock.now, due)
            if due == self._step_at:
                await self._step()
            elif due == upload:
                _, device, session = heapq.heappop(self._uploads)
                await self._upload(device, session)
            else:
                _, device, told = heapq.heappop(self._calls)
                await self._call(device, told=told)

    async def rounds(self) -> list[RoundRecord]:
        """Return the rounds that have ended, oldest first."""
        found = await self.server.ledger.rounds(self.server.task.task_id, limit=1_000_000)
        return [one for one in reversed(found) if one.ended]

    async def _step(self) -> None:
        """Let the leader take one step, like the server's own loop."""
        begin, end = self.away
        self.server.peer.away = begin <= self.clock.now < end
        self._resting = False
        try:
            decision = await self.server.leader.step()
        except PeerUnavailableError:
            self._pause = longer(self._pause)
            self._step_at = self.clock.now + self.population.some_of(self._pause)
            return
        self._pause, rest = 0.0, wait_seconds(decision, self.clock.now)
        self._resting = rest > 0
        if decision == Advance(RoundState.OPEN):  # the round is closed: both servers compute now
            rest = self.closing_seconds
        self._step_at = self.clock.now + rest

    async def _call(self, device: int, *, told: bool) -> None:
        now = self.clock.now
        awake = self.population.awake_at(device, now)
        if awake > now:
            self._call_at(awake, device, told=False)
            return
        self.joins[int(now)] += 1
        self.told[int(now)] += told
        self._sessions += 1
        session_id = device.to_bytes(8, "big") + self._sessions.to_bytes(8, "big")
        found = await self._join(device, session_id)
        if not isinstance(found, JoinTicket):
            self._call_at(now + found.seconds, device, told=True)
            return
        spec = RoundSpec.decode(found.round.encode(), self.server.task)
        await self._send_keys(spec.digest, session_id)
        if self.population.drops_out():
            self._call_at(now + self.population.gone_seconds(), device, told=False)
        else:
            at = now + self.population.session_seconds()
            heapq.heappush(self._uploads, (at, device, Uploading(spec.digest, session_id)))

    async def _join(self, device: int, session_id: bytes) -> JoinTicket | NotNow:
        token, issuer = f"token {device}", self.server.issuer
        try:
            return await issuer.join(token, session_id)
        except UnauthorizedError:  # a device is enrolled when a server first checks its token: most of a fleet never is
            new = NewToken(f"device {device}", hashlib.sha256(token.encode()).digest())
            await self.server.ledger.add_tokens([new], Order("simulation"), self.clock.now)
            return await issuer.join(token, session_id)

    async def _send_keys(self, round_id: bytes, session_id: bytes) -> None:
        """Send keys as soon as there is a ticket, like the SDK: a device that drops out later keeps its seat."""
        message, limit = _message(round_id, session_id), self.server.issuer.limit
        await self.server.ledger.put_keys(message, self.clock.now, require_admission=True, limit=limit)
        self.server.issuer.take(round_id)

    async def _upload(self, device: int, session: Uploading) -> None:
        """Let a session become complete; the device then calls for the next round, as docs/sdk.md shows."""
        ledger, now = self.server.ledger, self.clock.now
        upload = _message(session.round_id, session.session_id)
        if await ledger.put_update(upload, now, limit=self.server.task.cohort) is Stored.STORED:
            self.uploads += 1
            self.server.leader.completed()
        self._call_at(now + _MOMENT, device, told=False)

    def _call_at(self, time: float, device: int, *, told: bool) -> None:
        if time < self.seconds:
            heapq.heappush(self._calls, (time, device, told))


def _message(round_id: bytes, session_id: bytes) -> Upload:
    """Return keys or an update, which the ledger does not inspect."""
    return Upload(round_id=round_id, session_id=session_id, body_digest=_DIGEST, public_digest=_DIGEST, body=b"")
