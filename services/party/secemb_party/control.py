"""Operators' instructions for a task: pause it, drain the server, close or abort the open round.

During a pause, no new round begins. A round whose deadlines are running continues to its end; one that is waiting for
devices stays as it is, and devices join it after the pause. A pause is in the ledger, and lasts until it is ended.

A drain prepares for a stop: it is a pause during which no session joins the open round either. Sessions that have
joined must still reach the server, so it stays ready until their round has ended; then it may be stopped. A restart
ends the drain.

Each server tells the other, with the reason, but not which operator gave the instruction.
"""

from collections.abc import Awaitable, Callable
from typing import Literal

from secemb_party.errors import ControlRefusedError, PeerPausedError, StateConflictError
from secemb_party.ledger import Counts, Instruction, RoundRecord, RoundState, What
from secemb_party.logs import get_logger
from secemb_party.operators import Order
from secemb_party.parts import Parts
from secemb_party.peer_messages import Pause

Abort = Callable[[RoundRecord, str, Order], Awaitable[None]]
_BY_CHANCE = (
    "this task's privacy guarantee requires that participants are sampled at random, and closing a round early would"
    " bias the sample; wait for the deadline or abort the round"
)


class Control:
    """The instructions of one server's operators, and the state that the other server has reported."""

    def __init__(self, parts: Parts, *, abort: Abort, changed: Callable[[], Awaitable[None]]) -> None:
        self._role, self._task, self._ledger, self._clock = parts.role, parts.task, parts.ledger, parts.clock
        self._metrics, self._abort, self._changed = parts.metrics, abort, changed
        self._held: dict[What, Instruction] = {}
        self.there: Pause | None = None  # the other server's, as last reported
        self.waiting_there = False  # as reported by server 0: no session is on the way
        self._told_at = float("-inf")  # when the other server last learned ours
        self.wake: Callable[[], None] = lambda: None  # wakes server 0's leader

    async def start(self) -> None:
        """Read the current instructions; a drain ends with the process that received it, unless there are others."""
        if not self._ledger.shared and What.DRAIN in await self._ledger.instructions(self._task.task_id):
            await self._ledger.lift(self._task.task_id, What.DRAIN, None, self._clock())
        await self.refresh()

    @property
    def pause(self) -> Instruction | None:
        """Return the pause of this server's operator."""
        return self._held.get(What.PAUSE)

    @property
    def drain(self) -> Instruction | None:
        """Return the drain of this server."""
        return self._held.get(What.DRAIN)

    @property
    def paused(self) -> bool:
        """Return whether either operator prevents new rounds."""
        return self.here is not None or self.there is not None

    @property
    def draining(self) -> bool:
        """Return whether either operator prevents sessions from joining the open round."""
        return self.drain is not None or (self.there is not None and self.there.what == "drain")

    @property
    def here(self) -> Pause | None:
        """Return what to tell the other server."""
        one = self.pause or self.drain
        return None if one is None else Pause(what=_stops(one), reason=one.reason, since=one.at)

    def phase(self) -> tuple[str, float] | None:
        """Return the phase of a task while no round may begin, and when it started."""
        here = self.here
        if here is not None:
            return "paused", here.since
        return ("peer-paused", self.there.since) if self.there is not None else None

    def require_peer(self) -> None:
        """Raise unless the other server takes part in new rounds, as far as it has told."""
        if self.there is not None:
            raise PeerPausedError(self.there.reason)

    def of_round(self, round_id: bytes) -> Instruction | None:
        """Return the instruction for a round; an abort comes first."""
        found = [self._held.get(what) for what in (What.ABORT, What.CLOSE)]
        return next((one for one in found if one is not None and one.round_id == round_id), None)

    async def tell(self, what: What, order: Order) -> None:
        """Pause the task or drain this server; repeating it changes nothing."""
        await self._ledger.instruct(self._task.task_id, what, order, self._clock())
        await self._steered(what.value, order)

    async def lift(self, what: What, order: Order) -> None:
        """Resume the task or end the drain, on this server's side."""
        if await self._ledger.lift(self._task.task_id, what, order, self._clock()):
            await self._steered("resume" if what is What.PAUSE else "drain end", order)

    async def end_round(self, what: What, number: int, order: Order) -> None:
        """Close or abort the open round of this number."""
        record = await self._ledger.current_round(self._task.task_id)
        if record is None or record.number != number:
            raise ControlRefusedError(f"round {number} is not the current round; check the status and try again")
        if record.state is not RoundState.OPEN:
            raise ControlRefusedError(f"round {number} is already {record.state}, and both servers are finishing it")
        if what is What.CLOSE:
            await self._check_close(record)
        try:
            if self._role == 1:
                await self._abort(record, abort_reason(1, order.reason), order)
            else:
                await self._ledger.instruct(self._task.task_id, what, order, self._clock(), round_id=record.round_id)
        except StateConflictError:
            raise ControlRefusedError(f"round {number} has changed state in the meantime; check the status") from None
        await self._steered(what.value, order, round=number)

    async def _check_close(self, record: RoundRecord) -> None:
        """Refuse to seal a round early if its sum would cover too few people, or people who are not a random sample."""
        if self._role == 1:
            raise ControlRefusedError("only server 0 can close a round; ask its operator, or abort the round here")
        if self._task.privacy is not None and self._task.privacy.sampling_rate:
            raise ControlRefusedError(_BY_CHANCE)
        here, least = (await self._ledger.counts(record.round_id)).updates, self._task.min_cohort
        if here < least:
            raise ControlRefusedError(
                f"round {record.number} has {here:,} complete sessions and a sum needs {least:,}; wait for"
                f" {least - here:,} more, or abort the round"
            )

    async def hear(self, pause: Pause | None, *, waiting: bool = False) -> None:
        """Record the other server's state; it has received ours in the same exchange."""
        self._told_at, before = self._clock(), (self.there, self.waiting_there)
        self.there, self.waiting_there = pause, waiting
        if before != (pause, waiting):
            await self._changed()
            self.wake()
        if before[0] != pause:
            if pause is None:
                get_logger().info("the other server is joining rounds again")
            else:
                get_logger().info("the other server has stopped joining rounds", what=pause.what, reason=pause.reason)

    async def drained(self) -> bool:
        """Return whether this server was drained and may be stopped, and show it in the metrics."""
        done = self.drain is not None and await self.unfinished() is None
        self._metrics.drained(done)
        return done

    async def unfinished(self) -> str | None:
        """Return what a drained server must finish before it is stopped, or None if it can be."""
        record = await self._ledger.current_round(self._task.task_id)
        if record is not None:
            counts = await self._ledger.counts(record.round_id)
            if not waits_for_devices(record, counts, least=self._task.min_cohort, now=self._clock()):
                return f"round {record.number} is {record.state}"
        if self._role == 1 and self.drain is not None and self._told_at < self.drain.at:
            return "server 0 has not called since the drain started, so devices may still join there"
        return None

    async def _steered(self, what: str, order: Order, **facts: int) -> None:
        get_logger().info(f"operator: {what}", by=order.by, reason=order.reason, **facts)
        await self.refresh()
        self.wake()

    async def refresh(self) -> None:
        """Read the current instructions from the ledger."""
        self._held = await self._ledger.instructions(self._task.task_id)
        self._metrics.draining(self.drain is not None)
        await self.drained()
        await self._changed()


def abort_reason(role: int, reason: str | None) -> str:
    """Return why a round was aborted, as both servers record it."""
    return f"by the operator of server {role}: {reason}"[:500]


def waits_for_devices(record: RoundRecord, counts: Counts, *, least: int, now: float) -> bool:
    """Return whether an open round has too few sessions, and no device is on the way."""
    return record.state is RoundState.OPEN and now >= record.upload_until and counts.updates < least


def _stops(one: Instruction) -> Literal["pause", "drain"]:
    return "drain" if one.what is What.DRAIN else "pause"
