"""Server 0 in its leading part: it carries out what the conductor decides, one durable step at a time."""

import asyncio
import hashlib
import math
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace

from secemb_party.errors import PeerRefusedError, PeerSpentError, PeerUnavailableError
from secemb_party.evaluation import Share
from secemb_party.ledger import NewRound, Rollback, RoundRecord, RoundState
from secemb_party.peer_messages import list_digest
from secemb_party.service import Check, Party
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
from secemb_server0.peer import Peer
from secemb_server0.reconstruct import add_shares, next_model
from secemb_server0.rollback import Rollbacks
from secemb_shared.messages import RoundSpec
from secemb_shared.messages.spec import SURVEY, TRAIN
from secemb_shared.secure_sum import SUM_RING

DEFAULT_ALPHA = 2.0  # of the paper's m' = α · mean


def read_result(spec: RoundSpec, total: Share, sessions: int) -> dict[str, float]:
    """Return the fleet's figures; a figure that nobody contributed to is left out."""
    sums = [float(value) for value in SUM_RING.decode(total.sums)]
    if spec.kind == SURVEY:
        mean = sums[0] / sessions
        return {"mean_items": mean, "suggested_capacity": float(suggest_capacity(mean, spec.task.items))}
    predictions, squared, absolute, rankings, hits, gains = sums
    found: dict[str, float] = {}
    if predictions > 0:
        found |= {"rmse": math.sqrt(max(squared, 0.0) / predictions), "mae": absolute / predictions}
    if rankings > 0:
        found |= {"hit_rate": hits / rankings, "ndcg": gains / rankings}
    return found


def suggest_capacity(mean_items: float, items: int, alpha: float = DEFAULT_ALPHA) -> int:
    """Return m' = α · mean, rounded up, at least 1 and at most the whole catalogue."""
    return max(1, min(items, math.ceil(alpha * mean_items)))


ChooseKind = Callable[[int], str]

_LOOK_SECONDS = 10.0  # between two looks at the ledger, whatever is heard
_READY_SECONDS = 5.0  # for server 1 to say where it stands


def always_train(_: int) -> str:
    """Return the kind of a round of its number: training."""
    return TRAIN


class Leader:
    """Opens, seals and ends the rounds of one task."""

    def __init__(self, party: Party, peer: Peer, *, choose_kind: ChooseKind = always_train) -> None:
        self._party, self._peer, self._choose_kind = party, peer, choose_kind
        self._ledger, self._task = party.ledger, party.task
        self._announced: RoundRecord | None = None
        self._last: RoundRecord | None = None  # the latest round as the ledger holds it; none: look
        self._told: bytes | None = None  # the round that server 1 has been told of and has stored
        self.finished = False  # no round will open any more
        self.changed = asyncio.Event()  # set when it is worth while to look: all may be here, or something is wanted
        self._completed, self._awaited = 0, 1  # how often sessions became complete, and at which count to look again
        self.rollbacks = Rollbacks(party, peer)
        self._spent_there: set[str] = set()  # kinds of round that server 1's privacy budget has no room for

    @property
    def announced(self) -> RoundRecord | None:
        """Return the round that server 1 knows to be open: the one that devices may join."""
        return self._announced

    async def readiness(self) -> list[Check]:
        """Return this server's checks, and whether server 1 answers and has the same model."""
        checks = await self._party.readiness()
        if not all(check.ok for check in checks):
            return checks  # without its own ledger and model it cannot compare anything
        try:
            async with asyncio.timeout(_READY_SECONDS):
                standing = await self._peer.standing()
        except (PeerUnavailableError, PeerRefusedError, TimeoutError) as error:
            words = str(error) or "server 1 does not answer"
            hint = f"{words}; see [peer] url, certificates and token, and run secemb check"
            return [*checks, Check("peer", False, hint)]
        published = await self._ledger.published_version(self._task.task_id)
        same = published is not None and standing.task == self._task.task_id.hex()
        same = same and published is not None and standing.digest in await self._recent_digests(published.version)
        hint = (
            "the servers hold different tasks or models; compare secemb task show and secemb model list on both sides"
        )
        return [*checks, Check("peer", True, ""), Check("digests", same, "" if same else hint)]

    async def _recent_digests(self, version: int) -> set[str]:
        """Return the digests that server 1 may hold: the published one, or the next while it is being published."""
        versions = await self._ledger.versions(self._task.task_id)
        return {one.digest.hex() for one in versions if version <= one.version <= version + 1}

    async def roll_back(self, source: int, seen: int) -> Rollback:
        """Want the numbers of an older version in place of the one that was seen; the next step looks after it."""
        wish = await self.rollbacks.wish(source, seen=seen)
        self.changed.set()
        return wish

    def completed(self) -> None:
        """Hear that a session has become complete; one that is heard of twice only makes the next look come early."""
        self._completed += 1
        if self._completed >= self._awaited:
            self.changed.set()

    async def step(self) -> Decision:
        """Decide and carry out one thing; return what it was."""
        self.changed.clear()  # before looking: what happens from here on wakes the next wait
        last = self._last or await self._ledger.last_round(self._task.task_id)
        try:
            decision, self._last = await self._step(last)
        except BaseException:
            self._last = self._told = None  # the next step takes nothing for granted, here or at server 1
            raise
        return decision

    async def _step(self, last: RoundRecord | None) -> tuple[Decision, RoundRecord | None]:
        """Return what was decided, and the latest round after it where that is known."""
        before = self._completed
        record = last if last is not None and not last.ended else None
        facts, now = await self._facts(last), self._party.clock()
        self._awaited = before + max(1, missing(facts, now))
        if record is not None and facts.complete and all_here(facts, now) and now < facts.upload_until:
            facts = replace(facts, complete_there=await self._complete_there(record))
        decision = decide(facts, now)
        self.finished = isinstance(decision, Finished)
        match decision:
            case Open(number):
                last = await self._open(number)
            case RollBack():
                await self.rollbacks.carry_out()
            case Wait() if record is not None:
                last = await self._announce(record)
            case Abort() if record is not None:
                last = await self._seal(await self._close(record))  # and finds too few, unless one came just now
            case Advance(state) if record is not None:
                last = await self._advance(record, state)
        return decision, last

    async def _facts(self, last: RoundRecord | None) -> Facts:
        task = self._task
        if last is None or last.ended:
            number = 0 if last is None else last.number + 1
            wish = await self._ledger.open_rollback(task.task_id)
            return Facts(
                state=None,
                next_number=number,
                rounds=task.rounds,
                cohort=task.cohort,
                min_cohort=task.min_cohort,
                wanted=wish.source if wish is not None else None,
                affordable=TRAIN not in self._spent_there and await self._party.spending.affords(TRAIN),
            )
        facts = Facts(
            state=last.state,
            next_number=last.number + 1,
            rounds=task.rounds,
            cohort=task.cohort,
            min_cohort=task.min_cohort,
            join_until=last.join_until,
            upload_until=last.upload_until,
        )
        if last.state is not RoundState.OPEN:
            return facts  # whoever is in it by now is in it
        counts = await self._ledger.counts(last.round_id)
        return replace(facts, admitted=counts.admitted, complete=counts.updates)

    async def _complete_there(self, record: RoundRecord) -> int:
        await self._announce(record)
        return await self._peer.progress(record.round_id)

    async def _open(self, number: int) -> RoundRecord:
        published = await self._ledger.published_version(self._task.task_id)
        if published is None:
            raise PeerRefusedError("no model is published; start the server anew")
        spec = RoundSpec(
            task=self._task,
            number=number,
            model_version=published.version,
            model_digest=published.digest,
            kind=await self._kind(number),
        )
        now = self._party.clock()
        record = await self._ledger.create_round(
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
        return await self._announce(record)

    async def _kind(self, number: int) -> str:
        """Return the kind of a round; where the privacy budget has no room for a survey or evaluation, training."""
        wished = self._choose_kind(number)
        affordable = wished not in self._spent_there and await self._party.spending.affords(wished)
        return wished if affordable else TRAIN

    async def _announce(self, record: RoundRecord) -> RoundRecord:
        """Make sure that server 1 knows the open round; nobody joins before it does. Return the round as it is now."""
        ended = await self._tell(record)
        if ended is None:
            self._announced = record
        return ended or record

    async def _tell(self, record: RoundRecord) -> RoundRecord | None:
        """Announce a round to server 1; if its privacy budget has no room for it, the round ends here: return it."""
        if self._told == record.round_id:
            return None
        try:
            await self._peer.announce(record, await self._ledger.shares_by_kind(self._task.task_id))
        except PeerSpentError:
            self._spent_there.add(record.kind)
            self._announced = None  # server 1 may have known it before, and has lost its ledger
            now, reason = self._party.clock(), "the privacy budget of server 1 is spent"
            ended = await self._party.advance(record.round_id, record.state, RoundState.ABORTED, now, reason=reason)
            await self._party.tidy()
            return ended
        self._told = record.round_id
        return None

    async def _abort(self, record: RoundRecord, reason: str) -> RoundRecord:
        await self._peer.abort(record.round_id, reason)
        now = self._party.clock()
        ended = await self._party.advance(record.round_id, record.state, RoundState.ABORTED, now, reason=reason)
        await self._party.tidy()
        return ended

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
        """Take nothing new from now on: what is acknowledged later could not count any more."""
        self._announced = None
        return await self._party.advance(record.round_id, RoundState.OPEN, RoundState.SEALING, self._party.clock())

    async def _seal(self, record: RoundRecord) -> RoundRecord:
        """Agree with server 1 on the sessions that count: those that both hold complete, with equal public parts."""
        ended = await self._tell(record)  # this server may have crashed before it said so
        if ended is not None:
            return ended
        held = await self._ledger.session_summaries(record.round_id)
        both = await self._peer.prepare(record.round_id, held)
        complete = {one.session_id for one in held if one.complete}
        if not set(both) <= complete or sorted(set(both)) != both:
            raise PeerRefusedError("server 1 names sessions that are not complete here, or not in order")
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
        other = await self._peer.share(record.round_id, record.list_digest or b"")
        own = await self._party.share(record.round_id)
        total = await self._party.workers.run(lambda: add_shares(spec, own, other))
        sessions, version = len(record.sealed_sessions or ()), None
        if spec.kind == TRAIN:
            store = self._party.models
            model = await self._party.workers.run(lambda: next_model(store, spec, total, sessions))
            version = model.version
            await self._ledger.record_version(self._task.task_id, version, model.digest, self._party.clock())
        else:
            result = read_result(spec, total, sessions)
            await self._ledger.append_event("result", {"round": spec.number, **result}, self._party.clock())
        return await self._party.advance(
            record.round_id,
            RoundState.SHARED,
            RoundState.RECONSTRUCTED,
            self._party.clock(),
            remarks={"peer_share": await self._party.workers.run(lambda: hashlib.sha256(other).hexdigest())},
            next_version=version,
        )

    async def _publish(self, record: RoundRecord) -> RoundRecord:
        """Let devices see the version only when both servers have it."""
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
        """Sleep as long as the decision allows, but wake when all may be here."""
        if isinstance(decision, Finished):
            seconds = _LOOK_SECONDS
        elif isinstance(decision, Wait):
            seconds = max(0.0, decision.until - self._party.clock())
        else:
            return
        with suppress(TimeoutError):
            await asyncio.wait_for(self.changed.wait(), min(seconds, _LOOK_SECONDS))
