"""Server 0 as the leader: it carries out what the conductor decides, one durable step at a time."""

import asyncio
from contextlib import suppress
from dataclasses import replace

from secemb_party.ended_rounds import EndedRounds
from secemb_party.errors import (
    LedgerUnavailableError,
    PeerAbortedError,
    PeerPausedError,
    PeerRefusedError,
    PeerSpentError,
    PeerUnavailableError,
    StateConflictError,
)
from secemb_party.ledger import NewRound, Rollback, RoundRecord, RoundState
from secemb_party.operators import Order
from secemb_party.peer_messages import Pause
from secemb_party.service import Party
from secemb_party.succession.errors import PeerSucceededError
from secemb_server0.completion import Completion
from secemb_server0.conductor import (
    LOOK_SECONDS,
    Abort,
    Advance,
    Decision,
    Facts,
    Finished,
    Follow,
    Idle,
    Open,
    Paused,
    RollBack,
    Succeed,
    Succeeded,
    Wait,
    decide,
    enough_here,
    half_here,
    missing,
    rest,
    wants_to_seal,
)
from secemb_server0.door import Door, RoundTimer, TurnoutTimer
from secemb_server0.fact_reader import FactReader
from secemb_server0.kinds import ChooseKind, always_train
from secemb_server0.pace import Forecast
from secemb_server0.panel import Panel
from secemb_server0.peer import Peer
from secemb_server0.rollback import Rollbacks
from secemb_server0.seats import SeatRules, Seats
from secemb_server0.succession import Switch
from secemb_shared.messages import RoundSpec
from secemb_shared.messages.spec import EVALUATE

_FOLLOW_SECONDS = 0.5  # with other processes, which do not wake this one


class Leader:
    """Opens, seals and ends the rounds of one task."""

    def __init__(
        self,
        party: Party,
        peer: Peer,
        *,
        choose_kind: ChooseKind = always_train,
        panel: Panel | None = None,
        rules: SeatRules | None = None,
    ) -> None:
        self._party, self._peer, self.panel = party, peer, panel
        self.seats = Seats(rules or SeatRules(), party.task.cohort)
        self._enough, self._half = TurnoutTimer(enough_here), TurnoutTimer(half_here)
        self._ledger, self._task = party.ledger, party.task
        self.rollbacks, self._switch = Rollbacks(party, peer), Switch(party, peer)
        self._completion = Completion(party, peer, self.rollbacks, panel)
        self.timer = RoundTimer(party.task, clock=party.clock, steady=party.steady)
        self.door, self.forecast = Door(), Forecast(party.task)
        self._reading = FactReader(
            party,
            choose_kind=choose_kind,
            panel=panel,
            seats=self.seats,
            timer=self.timer,
            forecast=self.forecast,
            switch=self._switch,
        )
        self._last: RoundRecord | None = None  # the latest round in the ledger; None: it must be read
        self._told: tuple[bytes, float] | None = None  # the round and the deadline that server 1 has stored
        self.finished = False  # no more rounds will open
        self._waiting = False  # the open round waits for devices
        self._conducts: bool | None = None  # whether this process did at its last step
        self.changed = asyncio.Event()  # wakes the loop
        self._completed, self._awaited = 0, 1  # sessions that became complete, and the count that wakes the loop
        party.control.wake = self._steered
        if panel is not None:
            party.protect = lambda: panel.protected(party)

    async def roll_back(self, source: int, seen: int, order: Order) -> Rollback:
        """Request the numbers of an older version instead of those of version `seen`; the next step does it."""
        requested = await self.rollbacks.request(source, seen=seen, order=order)
        self.changed.set()
        return requested

    async def admitted(self, record: RoundRecord, session_id: bytes, now: float) -> RoundRecord:
        """Record that a session has joined; return the round with its current deadlines."""
        if now >= record.join_until:  # the session has begun a join window
            record = await self._ledger.round(record.round_id) or record
            self.changed.set()
        self.door.admit(session_id, record, self.timer.of(record))
        return record

    def seated(self, round_id: bytes) -> None:
        """Record that a session has taken a seat with its keys."""
        if self.door.holds(round_id):
            self.door.take()
            if self.door.is_full():
                self.changed.set()  # no more can join

    def completed(self) -> None:
        """Record that a session became complete; counting one twice only wakes the loop early."""
        self._completed += 1
        self.door.complete()
        if self._completed >= self._awaited:
            self.changed.set()

    def _steered(self) -> None:
        """Record that an operator has given one of the servers an instruction."""
        if self._party.control.draining:
            self.door.drain()
        self.changed.set()

    async def exchange(self) -> None:
        """Exchange states with server 1."""
        record = await self._ledger.current_round(self._task.task_id)
        round_id = record.round_id if record is not None and record.state is RoundState.OPEN else None
        with self.forecast.calling(self._party.clock):
            found = await self._peer.exchange(self._party.control.here, round_id, waiting=self._waiting)
        if round_id is not None and found.aborted is not None:
            self._reading.aborted_there = round_id, found.aborted
            self.changed.set()
        await self._party.control.hear(found.pause)
        if self._switch.hear(found.agreed):
            self.changed.set()

    @property
    def ended_rounds(self) -> EndedRounds | None:
        """Return how rounds ended; None before the first step."""
        return self._reading.ended_rounds

    def count_failure(self) -> None:
        """Count a step that failed unexpectedly."""
        self._party.metrics.conductor_failed()

    async def step(self) -> Decision:
        """Make and carry out one decision; return it. If another process of this server conducts, follow it."""
        await self._ledger.claim()
        self.changed.clear()  # before reading the ledger: anything that happens from here on wakes the next wait
        conducts = await self._ledger.conduct()
        if conducts != self._conducts:
            self._conducts, self._last, self._told = conducts, None, None
            self._party.metrics.conducts(conducts)
        if not conducts:
            return await self._follow()
        with self._ledger.conducting():
            return await self._conduct()

    async def _follow(self) -> Decision:
        """Let devices join the round that another process conducts, once server 1 knows it."""
        last, now = await self._ledger.last_round(self._task.task_id), self._party.steady()
        facts = await self._reading.facts(last)
        decision = decide(facts, now)
        self.finished, self._waiting = isinstance(decision, Finished), isinstance(decision, Idle | Paused)
        shut = last is None or last.state is not RoundState.OPEN or isinstance(decision, Paused)
        if last is None or shut or await self._ledger.recall(_announced(last)) is None:
            self.door.close()
        else:
            await self._open_door(last, facts)
        return Follow()

    async def joined_elsewhere(self, session_id: bytes) -> bool:
        """Return whether a session may have joined the open round through another process of this server."""
        return self._ledger.shared and await self._ledger.knows_session(session_id)

    async def _conduct(self) -> Decision:
        last = self._last or await self._ledger.last_round(self._task.task_id)
        try:
            decision, self._last = await self._step(last)
        except PeerPausedError as error:
            self._told = self._last = None
            await self._party.control.hear(Pause(what="pause", reason=str(error), since=self._party.clock()))
            decision = Paused()
        except BaseException as error:
            self._last = self._told = None  # the next step reads both from the ledger and announces them again
            if isinstance(error, PeerUnavailableError | LedgerUnavailableError):
                self.forecast.away(self._party.clock())
            raise
        self.forecast.back()
        if self._last is not None and self._last.state is RoundState.OPEN:
            self._last = None  # devices that join change its deadlines
        return decision

    async def _step(self, last: RoundRecord | None) -> tuple[Decision, RoundRecord | None]:
        """Return the decision, and the latest round after it if that is known."""
        before = self._completed
        record = last if last is not None and not last.ended else None
        facts, now = await self._reading.facts(last), self._party.steady()
        self._awaited = before + max(1, missing(facts, now))
        decision: Decision
        enough, half = (timer.since(record, facts, now) for timer in (self._enough, self._half))
        facts = replace(facts, enough_since=enough, half_since=half)
        try:
            asks = facts.complete and wants_to_seal(facts, now) and now < facts.upload_until
            if record is not None and asks:
                facts = replace(facts, complete_there=await self._complete_there(record, facts))
            decision = decide(facts, now)
            return decision, await self._carry_out(decision, facts, last)
        except PeerAbortedError as error:
            if record is None:
                raise
            return Abort(str(error)), await self._ended_there(record, str(error))

    async def _ended_there(self, record: RoundRecord, reason: str) -> RoundRecord:
        """End a round on this server that has ended on server 1 without a sum."""
        self.door.close()
        found = await self._ledger.round(record.round_id) or record
        return found if found.ended else await self._completion.abort_here(found, reason)

    async def _carry_out(self, decision: Decision, facts: Facts, last: RoundRecord | None) -> RoundRecord | None:
        """Carry out a decision; return the latest round after it if that is known."""
        record, now = last if last is not None and not last.ended else None, self._party.clock()
        self.finished = isinstance(decision, Finished | Succeeded)
        self._waiting = isinstance(decision, Idle | Paused)
        if self.finished and last is not None:
            self._party.metrics.task_phase("finished", number=last.number, since=last.ended_at or now)
        match decision:
            case Open(number, kind):
                await self._meet(last)
                last = await self._open(number, kind)
            case RollBack():
                await self.rollbacks.carry_out()
            case Succeed():
                await self._switch.carry_out()
            case Wait() | Idle() if record is not None:
                last = await self._announce(record, facts)
                phase = "waiting" if isinstance(decision, Idle) else "open"
                started_at = record.join_until - self._task.join_seconds if record.started else record.opened_at
                self._party.metrics.task_phase(phase, number=record.number, since=started_at)
            case Paused():
                self.door.close()
                self._show_paused(last)
            case Abort(reason) if record is not None:
                last = await self._abort(record, facts, reason)
            case Advance() if record is not None:
                last = await self._advance(record)
        self.forecast.hold(self._party.clock() if isinstance(decision, Paused) else None)
        return last

    def _show_paused(self, last: RoundRecord | None) -> None:
        paused = self._party.control.phase()
        if paused is not None:
            number = last.number if last is not None else None
            self._party.metrics.task_phase(paused[0], number=number, since=paused[1])

    async def _complete_there(self, record: RoundRecord, facts: Facts) -> int:
        await self._announce(record, facts)
        return await self._peer.progress(record.round_id)

    async def _open(self, number: int, kind: str) -> RoundRecord:
        published = await self._ledger.published_version(self._task.task_id)
        if published is None:
            raise PeerRefusedError("no model is published; restart the server")
        spec = RoundSpec(
            task=self._task,
            number=number,
            model_version=published.version,
            model_digest=published.digest,
            kind=kind,
        )
        now = self._party.clock()
        if self.panel is not None and kind == EVALUATE and self.panel.is_due(number):
            await self.panel.choose(self._ledger, spec.digest, now)  # before any device can join
        # Otherwise the first session sets the deadlines.
        join, upload = (0, 0) if self._reading.patient else (self._task.join_seconds, self._task.upload_seconds)
        record = await self._party.open_round(
            NewRound(
                round_id=spec.digest,
                task_id=self._task.task_id,
                number=number,
                kind=spec.kind,
                model_version=spec.model_version,
                spec=spec.encode(),
                opened_at=now,
                join_until=now + join,
                upload_until=now + upload,
            )
        )
        return await self._announce(record, await self._reading.facts(record))

    async def _meet(self, last: RoundRecord | None) -> None:
        """After a start, learn whether server 1 runs the task, and tell it of an abort: a restore does not tell it."""
        if self._told is not None:
            return
        await self.exchange()
        self._party.control.require_peer()
        if last is not None and last.state is RoundState.ABORTED:
            with suppress(PeerAbortedError):  # for another reason there
                await self._peer.abort(last.round_id, last.reason or "")

    async def _announce(self, record: RoundRecord, facts: Facts) -> RoundRecord:
        """Make sure that server 1 knows the open round; no device joins before that. Return the round as it is now."""
        ended = await self._tell(record)
        if ended is not None:
            return ended
        await self._open_door(record, facts)
        return record

    async def _open_door(self, record: RoundRecord, facts: Facts) -> None:
        known = self.door.holds(record.round_id)
        joined = [] if known else await self._ledger.session_summaries(record.round_id)
        self.door.open(record, facts, [one.session_id for one in joined])

    async def _tell(self, record: RoundRecord) -> RoundRecord | None:
        """Announce a round and its deadlines to server 1; if server 1 cannot open it, end it here and return it."""
        told = record.round_id, record.upload_until
        if self._told == told:
            return None
        try:
            shares = await self._ledger.shares_by_kind(self._task.task_id)
            ended = await self._peer.announce(record, shares, await self._party.check_key(record.round_id))
        except PeerSpentError:
            self._reading.spent_there.add(record.kind)
            self.door.close()  # server 1 may have known the round before and lost its ledger
            return await self._completion.abort_here(record, "the privacy budget of server 1 is spent")
        except PeerSucceededError as error:
            await self._switch.learn()
            return await self._ended_there(record, str(error)[:400])
        except PeerAbortedError as error:
            return await self._ended_there(record, str(error))
        if ended and record.state is RoundState.OPEN:
            self.door.close()
            reason = "it has ended on server 1: this server was restored from a backup"
            return await self._completion.abort_here(record, reason)
        self._told = told
        if self._ledger.shared:
            await self._ledger.remember(_announced(record), b"1", self._party.clock())
        return None

    async def _abort(self, record: RoundRecord, facts: Facts, reason: str) -> RoundRecord:
        self.door.close()
        if facts.abort is not None or facts.complete == facts.admitted:
            # Server 1 may not know the round, and must remember the abort in case an announcement arrives later.
            return await self._tell(record) or await self._completion.abort(record, reason)
        # There are too few to seal, unless one more has just arrived.
        closed = await self._close(record)
        return closed if closed.state is RoundState.OPEN else await self._advance(closed) or record

    async def _advance(self, record: RoundRecord) -> RoundRecord | None:
        self.door.close()
        if record.state is RoundState.OPEN:
            return await self._close(record)
        if record.state is RoundState.SEALING:  # this server may have crashed before it told server 1
            ended = await self._tell(record)
            if ended is not None:
                return ended
        return await self._completion.advance(record)

    async def _close(self, record: RoundRecord) -> RoundRecord:
        """Stop accepting messages; a round that an operator has aborted in the meantime stays open."""
        try:
            return await self._completion.close(record)
        except StateConflictError:
            await self._party.control.refresh()  # the next step aborts it
            return record

    async def wait(self, decision: Decision) -> None:
        """Sleep as long as the decision allows, but wake when something changes."""
        longest = _FOLLOW_SECONDS if self._ledger.shared else LOOK_SECONDS
        seconds = rest(decision, self._party.steady(), longest)
        if seconds > 0:
            with suppress(TimeoutError):
                await asyncio.wait_for(self.changed.wait(), seconds)


def _announced(record: RoundRecord) -> str:
    """Return the key under which the ledger holds that server 1 knows a round."""
    return f"announced:{record.round_id.hex()}"
