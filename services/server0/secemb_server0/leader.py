"""Server 0 as the leader: it carries out what the conductor decides, one durable step at a time."""

import asyncio
import hashlib
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from typing import Any

from secemb_party.errors import PeerRefusedError, PeerSpentError
from secemb_party.evaluation import Share
from secemb_party.ledger import NewRound, Rollback, RoundRecord, RoundState
from secemb_party.operators import Order
from secemb_party.peer_messages import list_digest
from secemb_party.service import Party
from secemb_server0.conductor import (
    Abort,
    Advance,
    Decision,
    Facts,
    Finished,
    Open,
    RollBack,
    Wait,
    all_here,
    decide,
    missing,
)
from secemb_server0.deadlines import RoundTimer
from secemb_server0.peer import Peer
from secemb_server0.reconstruct import add_shares, next_model, read_result, read_sums
from secemb_server0.rollback import Rollbacks
from secemb_server0.window import describe_window
from secemb_shared.messages import RoundSpec
from secemb_shared.messages.spec import EVALUATE, SURVEY, TRAIN

ChooseKind = Callable[[int], str]

_LOOK_SECONDS = 10.0  # the ledger is read at least this often


def always_train(_: int) -> str:
    """Return the kind of every round: training."""
    return TRAIN


class Leader:
    """Opens, seals and ends the rounds of one task."""

    def __init__(self, party: Party, peer: Peer, *, choose_kind: ChooseKind = always_train) -> None:
        self._party, self._peer, self._choose_kind = party, peer, choose_kind
        self._ledger, self._task = party.ledger, party.task
        self.timer = RoundTimer(party.task, clock=party.clock, steady=party.steady)
        self._announced: RoundRecord | None = None
        self._last: RoundRecord | None = None  # the latest round as in the ledger; None: read it
        self._told: bytes | None = None  # the round that server 1 has stored
        self.finished = False  # no round will open any more
        self.changed = asyncio.Event()  # wakes the loop: all sessions may be complete, or a rollback was requested
        self._completed, self._awaited = 0, 1  # sessions that became complete, and the count that wakes the loop
        self.rollbacks = Rollbacks(party, peer)
        self._spent_there: set[str] = set()  # kinds of round that server 1's privacy budget has no room for

    @property
    def announced(self) -> RoundRecord | None:
        """Return the round that server 1 knows to be open: the one that devices may join."""
        return self._announced

    async def roll_back(self, source: int, seen: int, order: Order) -> Rollback:
        """Request the numbers of an older version in place of the one that was seen; the next step carries it out."""
        requested = await self.rollbacks.request(source, seen=seen, order=order)
        self.changed.set()
        return requested

    def completed(self) -> None:
        """Note that a session became complete; counting one twice only wakes the loop early."""
        self._completed += 1
        if self._completed >= self._awaited:
            self.changed.set()

    def count_failure(self) -> None:
        """Count a step that failed for a reason that nobody has foreseen."""
        self._party.metrics.conductor_failed()

    async def step(self) -> Decision:
        """Decide and carry out one thing; return what it was."""
        await self._ledger.claim()
        self.changed.clear()  # before reading the ledger: what happens from here on wakes the next wait
        last = self._last or await self._ledger.last_round(self._task.task_id)
        try:
            decision, self._last = await self._step(last)
        except BaseException:
            self._last = self._told = None  # the next step reads both from the ledger and announces again
            raise
        return decision

    async def _step(self, last: RoundRecord | None) -> tuple[Decision, RoundRecord | None]:
        """Return the decision, and the latest round after it if that is known."""
        before = self._completed
        record = last if last is not None and not last.ended else None
        facts, now = await self._facts(last), self._party.steady()
        self._awaited = before + max(1, missing(facts, now))
        if record is not None and facts.complete and all_here(facts, now) and now < facts.upload_until:
            facts = replace(facts, complete_there=await self._complete_there(record))
        decision = decide(facts, now)
        self.finished = isinstance(decision, Finished)
        if self.finished and last is not None:
            self._party.metrics.task_phase("finished", number=last.number, since=last.ended_at or now)
        match decision:
            case Open(number, kind):
                await self._repeat_abort(last)
                last = await self._open(number, kind)
            case RollBack():
                await self.rollbacks.carry_out()
            case Wait() if record is not None:
                last = await self._announce(record)
            case Abort() if record is not None:
                last = await self._seal(await self._close(record))  # finds too few, unless one more has just arrived
            case Advance(state) if record is not None:
                last = await self._advance(record, state)
        return decision, last

    async def _facts(self, last: RoundRecord | None) -> Facts:
        task = self._task
        if last is None or last.ended:
            requested = await self._ledger.open_rollback(task.task_id)
            kind = await self._next_kind(last)
            return Facts(
                state=None,
                next_number=0 if last is None else last.number + 1,
                rounds=task.rounds,
                cohort=task.cohort,
                min_cohort=task.min_cohort,
                trained=await self._party.trained(),
                next_kind=kind,
                last_kind=last.kind if last is not None else None,
                rollback_to=requested.source if requested is not None else None,
                affordable=await self._affords(kind),
            )
        deadlines = self.timer.of(last)
        facts = Facts(
            state=last.state,
            next_number=last.number + 1,
            rounds=task.rounds,
            cohort=task.cohort,
            min_cohort=task.min_cohort,
            join_until=deadlines.join_until,
            upload_until=deadlines.upload_until,
        )
        if last.state is not RoundState.OPEN:
            return facts  # no session joins any more
        counts = await self._ledger.counts(last.round_id)
        return replace(facts, admitted=counts.admitted, complete=counts.updates)

    async def _complete_there(self, record: RoundRecord) -> int:
        await self._announce(record)
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
        record = await self._party.open_round(
            NewRound(
                round_id=spec.digest,
                task_id=self._task.task_id,
                number=number,
                kind=spec.kind,
                model_version=spec.model_version,
                spec=spec.encode(),
                opened_at=now,
                join_until=now + self._task.join_seconds,
                upload_until=now + self._task.upload_seconds,
            )
        )
        self.timer.of(record)  # from now on, whatever happens to the clock
        return await self._announce(record)

    async def _next_kind(self, last: RoundRecord | None) -> str:
        """Return the kind of the next round: training if the privacy budget has no room for a survey or evaluation."""
        if last is not None and last.kind == SURVEY and last.state is RoundState.ABORTED:
            chosen = SURVEY  # what it asks for is still unknown
        else:
            chosen = self._choose_kind(0 if last is None else last.number + 1)
        return chosen if await self._affords(chosen) else TRAIN

    async def _affords(self, kind: str) -> bool:
        return kind not in self._spent_there and await self._party.spending.affords(kind)

    async def _announce(self, record: RoundRecord) -> RoundRecord:
        """Make sure that server 1 knows the open round; no device joins before that. Return the round as it is now."""
        ended = await self._tell(record)
        if ended is None:
            self._announced = record
        return ended or record

    async def _tell(self, record: RoundRecord) -> RoundRecord | None:
        """Announce a round to server 1; if it cannot be held there, end it here and return it."""
        if self._told == record.round_id:
            return None
        try:
            ended = await self._peer.announce(record, await self._ledger.shares_by_kind(self._task.task_id))
        except PeerSpentError:
            self._spent_there.add(record.kind)
            return await self._end(record, "the privacy budget of server 1 is spent")
        if ended and record.state is RoundState.OPEN:
            return await self._end(record, "it has ended on server 1: this server was restored from a backup")
        self._told = record.round_id
        return None

    async def _abort(self, record: RoundRecord, reason: str) -> RoundRecord:
        await self._peer.abort(record.round_id, reason)
        return await self._end(record, reason)

    async def _end(self, record: RoundRecord, reason: str) -> RoundRecord:
        """Abort a round here."""
        self._announced = None  # server 1 may have known it before and lost its ledger
        now = self._party.clock()
        ended = await self._party.advance(record.round_id, record.state, RoundState.ABORTED, now, reason=reason)
        await self._party.tidy()
        return ended

    async def _repeat_abort(self, last: RoundRecord | None) -> None:
        """Let server 1 know how the last round ended, after a start: a restore aborts rounds without telling it."""
        if self._told is None and last is not None and last.state is RoundState.ABORTED:
            await self._peer.abort(last.round_id, last.reason or "")

    async def _advance(self, record: RoundRecord, state: RoundState) -> RoundRecord | None:
        match state:
            case RoundState.OPEN:
                return await self._close(record)
            case RoundState.SEALING:
                return await self._seal(record)
            case RoundState.SEALED:
                await self._party.share(record.round_id)
            case RoundState.SHARED:
                return await self._reconstruct(record)
            case RoundState.RECONSTRUCTED:
                return await self._publish(record)
        return None

    async def _close(self, record: RoundRecord) -> RoundRecord:
        """Accept nothing new from now on: it could no longer count."""
        self._announced = None
        return await self._party.advance(record.round_id, RoundState.OPEN, RoundState.SEALING, self._party.clock())

    async def _seal(self, record: RoundRecord) -> RoundRecord:
        """Agree with server 1 on the sessions that count: complete on both servers, with equal public parts."""
        ended = await self._tell(record)  # this server may have crashed before it told server 1
        if ended is not None:
            return ended
        held = await self._ledger.session_summaries(record.round_id)
        both = await self._peer.prepare(record.round_id, held)
        complete = {one.session_id for one in held if one.complete}
        if not set(both) <= complete or sorted(set(both)) != both:
            raise PeerRefusedError("server 1 lists sessions that are not complete here, or out of order")
        if len(both) < self._task.min_cohort:
            return await self._abort(record, "too few sessions on both sides")
        digest = await self._peer.commit(record.round_id, both)
        if digest != list_digest(both):
            raise PeerRefusedError("server 1 sealed another list")
        return await self._party.advance(
            record.round_id,
            RoundState.SEALING,
            RoundState.SEALED,
            self._party.clock(),
            sealed_sessions=both,
            list_digest=digest,
        )

    async def _reconstruct(self, record: RoundRecord) -> RoundRecord:
        """Add the two shares and take the optimiser's step, or read the sums of a survey or an evaluation."""
        _, spec = await self._party.round(record.round_id)
        total, peer_share = await self._open_sum(record, spec)
        sessions, version = len(record.sealed_sessions or ()), None
        if spec.kind == TRAIN:
            store = self._party.models
            model = await self._party.workers.run(lambda: next_model(store, spec, total, sessions))
            version = model.version
            await self._ledger.record_version(self._task.task_id, version, model.digest, self._party.clock())
        else:
            told: dict[str, Any] = {"round": spec.number, **read_result(spec, total, sessions)}
            if spec.kind == EVALUATE:
                told |= await describe_window(self._ledger, self._task, spec.number, read_sums(total))
                self._party.metrics.quality({name: one for name, one in told["window"].items() if name != "rounds"})
            await self._ledger.append_event("result", told, self._party.clock())
        return await self._party.advance(
            record.round_id,
            RoundState.SHARED,
            RoundState.RECONSTRUCTED,
            self._party.clock(),
            remarks={"peer_share": peer_share},
            next_version=version,
        )

    async def _open_sum(self, record: RoundRecord, spec: RoundSpec) -> tuple[Share, str]:
        """Return the plain sum and the digest of server 1's share; the shares themselves are large, and end here."""
        other = await self._peer.share(record.round_id, record.list_digest or b"")
        own = await self._party.share(record.round_id)
        return await self._party.workers.run(lambda: (add_shares(spec, own, other), hashlib.sha256(other).hexdigest()))

    async def _publish(self, record: RoundRecord) -> RoundRecord:
        """Publish the version here once server 1 has published it."""
        model = None
        if record.next_version is not None:
            version = record.next_version
            model = await self._party.workers.run(lambda: self._party.models.load(version))
        digest = await self._peer.publish(record.round_id, model)
        if model is not None:
            if digest != model.digest:
                raise PeerRefusedError("server 1 published another model")
            await self._party.publish(model.version)
        now = self._party.clock()
        ended = await self._party.advance(record.round_id, RoundState.RECONSTRUCTED, RoundState.PUBLISHED, now)
        await self._party.tidy()
        return ended

    async def wait(self, decision: Decision) -> None:
        """Sleep as long as the decision allows, but wake when all sessions may be complete."""
        if isinstance(decision, Finished):
            seconds = _LOOK_SECONDS
        elif isinstance(decision, Wait):
            seconds = max(0.0, decision.until - self._party.steady())
        else:
            return
        with suppress(TimeoutError):
            await asyncio.wait_for(self.changed.wait(), min(seconds, _LOOK_SECONDS))
