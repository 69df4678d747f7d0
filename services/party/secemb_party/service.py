"""The service of both servers: models, rounds, acceptance of sessions' messages, and the share of the sum.

The event loop only waits, workers compute, and the ledger stores. Nothing is acknowledged before it is durable, and
every decision is made in one of the ledger's transactions, so a crash loses nothing that was acknowledged.
"""

import asyncio
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from typing import Any, NamedTuple

from secemb_party.budget import Spending, count_trained
from secemb_party.compute import PreparedRound
from secemb_party.control import Control
from secemb_party.ended_rounds import EndedRounds, read_ended
from secemb_party.errors import (
    LedgerTakenError,
    LedgerUnavailableError,
    PeerRefusedError,
    RoundClosedError,
    UnknownRoundError,
)
from secemb_party.intake import Intake
from secemb_party.inventory import MODEL, Inventory
from secemb_party.ledger import NewRound, RoundRecord, RoundState, Window
from secemb_party.ledger.records import ENDED
from secemb_party.logs import get_logger
from secemb_party.operators import Order
from secemb_party.parts import Parts
from secemb_party.peer_clock import PeerClock
from secemb_party.prepared_rounds import PreparedRounds
from secemb_party.room import Space
from secemb_party.running_sum import RunningSum
from secemb_party.storage import Blob, Model, sha256_of
from secemb_party.storage.first_version import starting_model
from secemb_party.storage.store_health import StoreHealth
from secemb_party.succession import Successions
from secemb_shared.dpf import CHECK_KEY_BYTES
from secemb_shared.errors import SessionError
from secemb_shared.messages import RoundSpec
from secemb_shared.messages.spec import TRAIN
from secemb_shared.randomness import secure_bytes

_DRAINED = "this server is drained and can be stopped; run `secemb drain --end` to admit devices again"


class Check(NamedTuple):
    """A requirement of the server. The hint is public: it names the fix, never an address or a secret."""

    check: str
    ok: bool
    hint: str
    blocks: bool = True  # a server with a failed check that does not block is ready: another task works


class Party:
    """One server's storage and computations for one task."""

    def __init__(self, parts: Parts) -> None:
        self.role, self.task, self.ledger = parts.role, parts.task, parts.ledger
        self.models, self.workers, self.clock = parts.models, parts.workers, parts.clock
        self.memory = parts.memory
        self.steady = parts.steady
        self._shares, self._compute = parts.shares, parts.compute
        self.metrics, self.scratch, self._keep_rounds = parts.metrics, parts.scratch, parts.keep_rounds
        self.catalogue, self.tracing = parts.catalogue, parts.tracing
        self.allowed_origins = parts.allowed_origins
        self._keep_seconds, self._keep_tasks = parts.keep_seconds, parts.keep_tasks
        self._keep_versions = parts.keep_versions
        self._prepared = PreparedRounds(parts, self.round, self.check_key)
        self._refusals_before: dict[str, int] = {}  # when the last round ended
        self._opened = b""  # the round logged last
        self._sharing: dict[bytes, asyncio.Task[Blob]] = {}
        self._spend = asyncio.Lock()
        self.peer_clock = PeerClock(parts.clock, parts.steady, parts.metrics)
        self.seat_seconds = parts.seat_seconds
        self.space = Space(parts.scratch, reserve=parts.reserve, ledger_full=lambda: self.ledger.full)
        self._store_health = StoreHealth(parts.objects, parts.steady)
        self._running: dict[bytes, RunningSum] = {}  # by round; of the open one, and one that is being sealed
        self.intake = Intake(parts, self.prepared, self.space, self._complete)
        self.inventory = Inventory(parts)
        self.spending = Spending(parts.task, parts.ledger, parts.workers, parts.metrics)
        self.protect: Callable[[], Awaitable[Collection[int]]] = _nothing  # versions to keep however old they are
        self.successions = Successions(parts)
        self.control = Control(parts, abort=self._abort, changed=self._show_last)

    async def start(self) -> None:
        """Record the task and its first model, and check that its privacy can be accounted for."""
        await self.spending.inherit()
        await self.spending.standing()
        await self.ledger.add_task(self.task.task_id, self.task.encode(), self.clock())
        published = await self.ledger.published_version(self.task.task_id)
        if published is None:
            await self.install(await self.workers.run(lambda: starting_model(self.task, self.models)))
        else:
            self.metrics.model_version(published.version, published.published_at or published.recorded_at)
        self.metrics.round_deadline(self.task.upload_seconds)
        self.metrics.expect_rounds(sorted(ENDED))
        await self.successions.start()
        await self.control.start()
        await self.inventory.take()

    async def readiness(self) -> list[Check]:
        """Return the conditions for sending devices here, and what to do if one is not met."""
        try:
            await self.ledger.claim()
            faults = await self.inventory.faults()
            drained = [Check("drained", False, _DRAINED)] if await self.control.drained() else []
        except LedgerTakenError as error:
            return [Check("ledger", False, str(error))]
        except LedgerUnavailableError:
            return [Check("ledger", False, "the database is not responding; start it, or check [ledger] url")]
        wrong = [Check(fault.check, False, f"{fault.text}; {fault.fix}") for fault in faults]
        shortage = self.space.shortage() or await self._store_health.fault()
        room = Check("storage", shortage is None, shortage or "")
        unable = self._compute.fault()
        compute = Check("compute", unable is None, unable or "")
        wrong_clock = self.peer_clock.fault()
        clock = Check("clock", wrong_clock is None, wrong_clock or "")
        return [Check("ledger", True, ""), *(wrong or [Check(MODEL, True, "")]), compute, room, clock, *drained]

    async def probe_ledger(self) -> None:
        """Check whether a database that failed to write can write again, because there may be nothing else to write."""
        if not self.ledger.writable:
            await self.ledger.probe()

    async def install(self, model: Model) -> None:
        """Store a model and make it the published version."""
        digest = await self.workers.run(lambda: self.models.save(model))
        now = self.clock()
        await self.ledger.record_version(self.task.task_id, model.version, digest, now)
        await self.publish(model.version)

    async def publish(self, version: int) -> None:
        """Make a recorded version visible to devices."""
        now = self.clock()
        await self.ledger.publish_version(self.task.task_id, version, now)
        self.metrics.model_version(version, now)

    async def open_round(self, new: NewRound, check_key: bytes | None = None) -> RoundRecord:
        """Record a round and return its current state: it may have been opened before.

        Server 0 draws the key for its checks and sends it only to server 1: a device that knew it could make invalid
        keys that pass.
        """
        drawn = check_key or secure_bytes(CHECK_KEY_BYTES)
        if await self.ledger.remember(_check_key(new.round_id), drawn, self.clock()) != drawn and check_key is not None:
            # A second key would mean a second evaluation of devices' proofs, and two of them reveal the update.
            raise PeerRefusedError("this round was opened with a different check key")
        record = await self.ledger.create_round(new)
        self._show(record)
        if record.round_id != self._opened:  # server 0 may announce it again
            self._opened = record.round_id
            tell_round(record, "opened", version=record.model_version)
        return record

    async def postpone(self, round_id: bytes, window: Window) -> None:
        """Set later deadlines of an open round, which server 0 has announced."""
        await self.ledger.postpone(round_id, window)
        self.control.waiting_there = False  # a device has joined there since
        self._show(await self.ledger.round(round_id))

    async def advance(
        self,
        round_id: bytes,
        expect: RoundState,
        to: RoundState,
        now: float,
        *,
        remarks: Mapping[str, Any] | None = None,
        **facts: Any,
    ) -> RoundRecord:
        """Move a round to its next state and record the event, with remarks that are not stored in the round itself."""
        ends = {"refused": self.refusals()} if to in ENDED else {}
        counted = self.metrics.refusals()
        record = await self.ledger.advance(round_id, expect, to, now, remarks={**(remarks or {}), **ends}, **facts)
        self.metrics.round_phase(expect.value, max(0.0, now - record.entered_at(expect)))
        self._show(record)
        tell_round(record, to.value, **await self._count_sessions(record))
        if record.ended:
            self.metrics.round_ended(to.value)
            self._refusals_before = counted
        return record

    async def _abort(self, record: RoundRecord, reason: str, order: Order) -> None:
        """End an open round without a sum, on the order of this server's operator."""
        now = self.clock()
        await self.advance(record.round_id, RoundState.OPEN, RoundState.ABORTED, now, reason=reason, order=order)
        await self.tidy()

    async def _show_last(self) -> None:
        self._show(await self.ledger.last_round(self.task.task_id))

    def _show(self, record: RoundRecord | None) -> None:
        """Show the latest round's number and phase in the metrics."""
        number, paused = record.number if record is not None else None, self.control.phase()
        if record is None or record.ended:
            phase, since = paused or ("idle", record.ended_at or 0.0 if record is not None else self.clock())
        elif record.state is not RoundState.OPEN:
            phase, since = record.state.value, record.entered_at(record.state)
        elif record.started and not self.control.waiting_there:
            phase, since = "open", record.join_until - self.task.join_seconds
        else:
            phase, since = paused or ("waiting", record.upload_until)
        self.metrics.task_phase(phase, number=number, since=since)

    async def _count_sessions(self, record: RoundRecord) -> dict[str, int]:
        """Count the outcomes of the sessions of a round that has just been sealed or aborted; return them for the log.

        Sessions of a discarded round were counted when it was sealed, and are counted again.
        """
        if record.state is RoundState.DISCARDED:
            self.metrics.round_sessions("discarded", len(record.sealed_sessions or ()))
        if record.state not in (RoundState.SEALED, RoundState.ABORTED):
            return {}
        counted, sessions = len(record.sealed_sessions or ()), await self.ledger.counts(record.round_id)
        left_out = sessions.admitted - counted
        self.metrics.round_sessions("counted", counted)
        self.metrics.round_sessions("left-out" if counted else "aborted", left_out)
        return {
            "counted": counted,
            "left_out": left_out,
            "silent": sessions.admitted - sessions.keys,  # joined but sent nothing
            "unfinished": sessions.keys - sessions.updates,  # read rows but sent no update
            "one_sided": sessions.updates - counted,  # complete here, but incomplete or different on the other server
        }

    def note_rejected(self, record: RoundRecord, sessions: Sequence[bytes]) -> None:
        """Record sessions that are complete on both servers but failed their checks: they do not count."""
        if sessions:
            self.metrics.sessions_rejected(len(sessions))
            get_logger().warning("sessions rejected", round=record.number, rejected=len(sessions))

    def refusals(self) -> dict[str, int]:
        """Return how often each kind of request was refused since a round last ended here, or since the start."""
        before = self._refusals_before
        return {slug: more for slug, count in self.metrics.refusals().items() if (more := count - before.get(slug, 0))}

    async def tidy(self) -> None:
        """Delete what is no longer needed after rounds: bodies, shares, old models. Digests of sessions are kept."""
        await self.ledger.forget_bodies(keep_last_rounds=self._keep_rounds)
        kept = await self.ledger.rounds(self.task.task_id, limit=self._keep_rounds + 1)
        # A share of a round that the ledger does not contain is evidence of an outdated ledger, so it is kept.
        foreign = {one for one in self._shares.rounds() if not await self._is_own(one)}
        await self.workers.run(lambda: self._shares.prune({record.round_id for record in kept} | foreign))
        current = await self.ledger.current_round(self.task.task_id)
        for ended in [one for one in self._running if current is None or one != current.round_id]:
            del self._running[ended]
        wanted = await self.ledger.open_rollback(self.task.task_id)
        protected = [*([wanted.source] if wanted is not None else []), *await self.protect()]
        keep, free = self._keep_versions, self.space.free()
        await self.workers.run(lambda: self.models.prune(keep=keep, protect=protected, free=free))

    async def _is_own(self, round_id: bytes) -> bool:
        record = await self.ledger.round(round_id)
        return record is not None and record.task_id == self.task.task_id

    async def forget_old(self, hosted: Collection[bytes] = ()) -> int:
        """Remove a batch of outdated session rows, and the files of tasks that are not `hosted`; count the rows.


        Nothing is removed before the two servers' clocks have been compared or while they differ, because rows expire
        by time.
        """
        if not self.peer_clock.compared() or self.peer_clock.fault() is not None:
            return 0
        kept = {self.task.task_id, *hosted}
        others = [one.task_id for one in await self.ledger.tasks() if one.task_id not in kept]
        old = [] if self._keep_tasks is None else others[: max(0, len(others) - self._keep_tasks)]
        await self.workers.run(lambda: self.models.forget_tasks(old))
        return await self.ledger.forget_sessions(ended_before=self.clock() - self._keep_seconds, tasks=old)

    async def round(self, round_id: bytes) -> tuple[RoundRecord, RoundSpec]:
        """Return a round of this task and its specification."""
        record = await self.ledger.round(round_id)
        if record is None or record.task_id != self.task.task_id:
            raise UnknownRoundError("this server does not know that round; join the current one")
        return record, RoundSpec.decode(record.spec, self.task)

    async def trained(self) -> int:
        """Return how many training rounds have had their sum opened and used: the task has `rounds` of them."""
        shares = await self.ledger.shares_by_kind(self.task.task_id)
        discarded = await self.ledger.discarded_by_kind(self.task.task_id)
        return count_trained(self.task, shares=shares.get(TRAIN, 0), discarded=discarded.get(TRAIN, 0))

    async def ended_rounds(self) -> EndedRounds:
        """Return how the task's rounds have ended."""
        return await read_ended(self.ledger, self.task.task_id)

    async def share(self, round_id: bytes) -> Blob:
        """Return this party's stored share of a sealed round: it is computed once, and never changes."""
        # Noise is drawn once: concurrent callers wait for the same bytes, and cancelling a caller does not cancel the
        # computation.
        sharing = self._sharing.get(round_id)
        if sharing is None:
            sharing = self._sharing[round_id] = asyncio.create_task(self._share(round_id))
            sharing.add_done_callback(lambda done: self._forget_sharing(round_id, done))
        return await asyncio.shield(sharing)

    def _forget_sharing(self, round_id: bytes, done: "asyncio.Task[Blob]") -> None:
        del self._sharing[round_id]
        if not done.cancelled():
            done.exception()  # raised in every waiting caller; if there is none, the next call raises it again

    async def _share(self, round_id: bytes) -> Blob:
        record, spec = await self.round(round_id)
        if record.ended and not self._shares.has(round_id):
            raise RoundClosedError("this round has ended, and its share is no longer kept")
        if record.share_digest is not None:
            digest = record.share_digest
            return await self.workers.run(lambda: self._shares.load(round_id, digest))
        if record.state is not RoundState.SEALED or record.sealed_sessions is None:
            raise SessionError("this round is not sealed yet; its sum is computed after sealing")
        async with self._spend:  # the check and the spending of the budget must be atomic, for any rounds
            await self.spending.require(spec.kind)
            share, digest = await self._stored_share(record)
            await self.advance(round_id, RoundState.SEALED, RoundState.SHARED, self.clock(), share_digest=digest)
            await self.spending.standing()
        return share

    async def _stored_share(self, record: RoundRecord) -> tuple[Blob, bytes]:
        """Return the share and its digest once it is on disk; an existing share is not computed again."""
        round_id, sealed = record.round_id, record.list_digest or b""
        found = await self.workers.run(lambda: self._shares.find(round_id, sealed))
        if found is not None:
            return found, await self.workers.run(lambda: sha256_of(found))
        digest = await self._store_share(record, sealed)
        if digest is None:
            # Another process of this server was first: its noise is drawn and may have been sent, so its share counts.
            return await self._stored_share(record)
        return await self.workers.run(lambda: self._shares.load(round_id, digest)), digest

    async def _store_share(self, record: RoundRecord, sealed: bytes) -> bytes | None:
        """Compute the share, which is as large as the table, and keep it only in the store; return its digest."""
        running = self._running_sum(record.round_id)
        share = await running.share(record.sealed_sessions or ())
        del self._running[record.round_id]
        return await self.workers.run(lambda: self._shares.save(record.round_id, sealed, share))

    async def tell(self, round_id: bytes, sessions: Sequence[bytes]) -> list[bytes]:
        """Return this server's messages to the other about the updates of complete sessions: one each."""
        return await self._running_sum(round_id).tell(sessions)

    def _complete(self, spec: RoundSpec, session_id: bytes) -> None:
        """Record that a session is now complete here."""
        if spec.kind == TRAIN and (self.role == 1 or self.ledger.conducts):  # another process will make the sum
            self._running_sum(spec.digest).arrived(session_id)

    def _running_sum(self, round_id: bytes) -> RunningSum:
        if round_id not in self._running:
            self._running[round_id] = RunningSum(
                lambda: self.prepared(round_id),
                lambda sessions: self.ledger.read_bodies(round_id, sessions, batch=self._compute.batch),
                batch=self._compute.batch,
            )
        return self._running[round_id]

    async def prepared(self, round_id: bytes) -> PreparedRound:
        """Return the engine's prepared round, shared by all its sessions."""
        return await self._prepared.get(round_id)

    async def check_key(self, round_id: bytes) -> bytes:
        """Return the key with which the two servers check a round's sessions."""
        key = await self.ledger.recall(_check_key(round_id))
        if key is None:
            raise UnknownRoundError("this server has no check key for that round; join the current one")
        return key


def _check_key(round_id: bytes) -> str:
    return f"check-key:{round_id.hex()}"


async def _nothing() -> Collection[int]:
    return ()


def tell_round(record: RoundRecord, what: str, **facts: int) -> None:
    """Log what happened to a round, on both servers under the same id."""
    told = {"round": record.number, "round_id": record.round_id.hex()[:12], "kind": record.kind, **facts}
    if what == RoundState.PUBLISHED and record.next_version is not None:
        told["version"] = record.next_version
    if record.reason is not None:
        told["reason"] = record.reason
    get_logger().info(f"round {what}", **told)
