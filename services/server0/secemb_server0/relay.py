"""The relay: server 0 accepts device messages for both servers and forwards server 1's part, many in one request."""

import asyncio
from collections.abc import Awaitable
from dataclasses import dataclass, field
from typing import TypeVar

from secemb_party.errors import PeerUnavailableError, RelayRefusedError
from secemb_party.intake import Expected
from secemb_party.metrics import Metrics
from secemb_party.relay_frames import MOST_FRAMES, Frame, Refusal
from secemb_party.service import Party
from secemb_party.tickets import Claim
from secemb_party.upload_macs import Kept, Sent
from secemb_server0.peer import RelayLine
from secemb_shared.messages import Kind, RoundSpec
from secemb_shared.messages.relayed import encode_relayed_answer, relayed_bytes, reply_bytes, split_relayed, step_of

Own = TypeVar("Own")


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """The limits of a relay's batches."""

    gather_seconds: float = 0.002  # messages that arrive within this time are sent together
    frames: int = MOST_FRAMES // 2  # in one request
    batch_bytes: int = 4 << 20  # in one request; a single frame may be longer
    tries: int = 3
    pause_seconds: float = 0.2  # before the second try; the third waits twice as long


@dataclass(eq=False, slots=True)
class _Waiting:
    """A frame waiting for its reply."""

    data: bytes
    size: int  # of the reply in bytes, unless it is a refusal
    reply: "asyncio.Future[bytes]" = field(default_factory=lambda: asyncio.get_running_loop().create_future())


class Relay:
    """One server 0's relay."""

    def __init__(self, line: RelayLine, *, metrics: Metrics | None = None, limits: Limits | None = None) -> None:
        self._line, self._metrics, self._limits = line, metrics or Metrics(), limits or Limits()
        self._gathered: list[_Waiting] = []
        self._timer: asyncio.TimerHandle | None = None
        self._batches: set[asyncio.Task[None]] = set()

    def pass_on(self, frame: Frame, size: int) -> "asyncio.Future[bytes]":
        """Return the future reply of server 1 to a frame: `size` bytes, or `RelayRefusedError`."""
        # Not a coroutine, which would hold the frame in addition to its encoded bytes until the reply arrives.
        waiting = _Waiting(frame.encode(), size)
        self._gathered.append(waiting)
        if len(self._gathered) >= self._limits.frames or self._gathered_bytes() >= self._limits.batch_bytes:
            self._depart()
        elif self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(self._limits.gather_seconds, self._depart)
        return waiting.reply

    def _gathered_bytes(self) -> int:
        return sum(len(one.data) for one in self._gathered)

    def _depart(self) -> None:
        """Send the collected frames."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        batch, self._gathered = [one for one in self._gathered if not one.reply.done()], []
        if batch:
            task = asyncio.ensure_future(self._carry(batch))
            self._batches.add(task)
            task.add_done_callback(self._batches.discard)

    async def _carry(self, batch: list[_Waiting]) -> None:
        """Finish a batch: every frame gets a reply or an error, whatever goes wrong."""
        trouble: Exception = PeerUnavailableError("server 1 is not responding")
        try:
            trouble = await self._try(batch) or trouble
        except Exception as error:
            trouble = error  # the requests fail with this error and are logged
        finally:
            for one in batch:
                if not one.reply.done():
                    one.reply.set_exception(trouble)

    async def _try(self, batch: list[_Waiting]) -> PeerUnavailableError | None:
        """Send a batch until every frame has a reply; return why the last attempt failed."""
        trouble = None
        for number in range(self._limits.tries):
            if number:
                await asyncio.sleep(self._limits.pause_seconds * number)
            waiting = [one for one in batch if not one.reply.done()]
            if not waiting:
                break
            try:
                await self._send(waiting)
            except PeerUnavailableError as error:
                trouble = error
        return trouble

    async def _send(self, waiting: list[_Waiting]) -> None:
        most = max(one.size for one in waiting)
        async for reply in self._line.pass_on([one.data for one in waiting], most=most):
            if reply.place >= len(waiting) or waiting[reply.place].reply.done():
                continue  # no request is waiting for it any more
            self._settle(waiting[reply.place], reply.body)

    def _settle(self, one: _Waiting, body: bytes | Refusal) -> None:
        if isinstance(body, Refusal):
            self._metrics.refused_by_peer(body.slug)
            one.reply.set_exception(RelayRefusedError(body))
        elif len(body) != one.size:
            one.reply.set_exception(PeerUnavailableError("server 1's reply has the wrong length for this round"))
        else:
            one.reply.set_result(body)


@dataclass(frozen=True, slots=True)
class Receipts:
    """The receipts for data that both servers hold durably."""

    own: Kept
    other: bytes  # server 1's receipt, which only the device can check


class RelayedSessions:
    """Handles messages of devices that use server 0 only: it does its own part while server 1 does the other.

    A message is accepted only when both servers hold it durably. This server stores its part last, so a message that
    server 1 refuses leaves nothing behind here.
    """

    def __init__(self, party: Party, relay: Relay) -> None:
        self._party, self._relay = party, relay

    async def expect_keys(self, claim: Claim) -> Expected[bytes, bytes]:
        """Expect RELAYED_KEYS; accepting it returns RELAYED_ANSWER, both answers under server 1's mask."""
        own = await self._party.intake.expect_keys(claim, "relayed")

        async def take(message: bytes, _: Awaitable[object] | None = None) -> bytes:
            part, passing = self._pass_on(own.spec, claim, Kind.RELAYED_KEYS, message)
            taking = own.take(part, passing)
            del message, part  # many wait for server 1 at the same time, so their bytes are held only once
            answer, other = await _both(taking, passing)
            return encode_relayed_answer(own.spec, claim.session_id, answer, other)

        return Expected(own.spec, relayed_bytes(own.spec, Kind.RELAYED_KEYS), take)

    async def expect_update(self, claim: Claim) -> Expected[Sent, Receipts]:
        """Expect RELAYED_UPLOAD; accepting it returns what is durable on both servers."""
        own = await self._party.intake.expect_update(claim, "relayed")

        async def take(sent: Sent, _: Awaitable[object] | None = None) -> Receipts:
            part, passing = self._pass_on(own.spec, claim, Kind.RELAYED_UPLOAD, sent.message)
            taking = own.take(Sent(part, sent.mac), passing)
            del sent, part
            return Receipts(*await _both(taking, passing))

        return Expected(own.spec, relayed_bytes(own.spec, Kind.RELAYED_UPLOAD), take)

    def _pass_on(
        self, spec: RoundSpec, claim: Claim, kind: Kind, message: bytes
    ) -> tuple[bytes, "asyncio.Future[bytes]"]:
        """Forward server 1's part; return this server's own part and the future reply of server 1."""
        split, step = split_relayed(spec, claim.session_id, kind, message), step_of(spec, kind)
        frame = Frame(step, claim, split.box + split.public)
        return split.own, self._relay.pass_on(frame, reply_bytes(spec, step))


async def _both(taking: Awaitable[Own], passing: "asyncio.Future[bytes]") -> tuple[Own, bytes]:
    """Wait for both servers; if one refuses, do not wait for the other."""
    try:
        return await taking, await passing
    finally:
        passing.cancel()
        await asyncio.gather(passing, return_exceptions=True)
