"""What both servers do alike: take a session's keys and update, remember them, and add up their share.

The event loop does the waiting, the workers the arithmetic, the ledger the remembering. Nothing is answered before it
is durable, and everything is decided in the ledger's transactions, so that a crash at any point loses nothing that was
acknowledged.
"""

import asyncio
import hashlib
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any, TypeVar

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

from secemb_party.budget import Spending, blur
from secemb_party.compute.threads import Workers
from secemb_party.errors import RoundClosedError, SessionConflictError, UnknownRoundError, UnknownSessionError
from secemb_party.evaluation import Evaluation, Share, upload_bytes
from secemb_party.http.health import Check
from secemb_party.ledger import Ledger, LedgerUnavailableError, RoundRecord, RoundState, Stored, Upload
from secemb_party.ledger.records import ENDED
from secemb_party.round import BATCH
from secemb_party.storage import Model, ModelStore, Shape, initial_model
from secemb_party.storage.share_store import ShareStore
from secemb_party.telemetry import Metrics
from secemb_party.tickets import READ_DOMAIN, TicketCheck, TicketExpiredError
from secemb_party.upload_macs import Kept, Sent, UploadMacs
from secemb_shared import reading
from secemb_shared.dpf import Backend
from secemb_shared.errors import SessionError
from secemb_shared.messages import RoundSpec, Sizes, TaskSpec
from secemb_shared.messages.canonical import decimal

Clock = Callable[[], float]
ReadBody = Callable[[int], Awaitable[bytes]]
ReadUpload = Callable[[int], Awaitable[Sent]]
Result = TypeVar("Result")
_KEPT_EVALUATIONS = 4  # the round that is open, the one that is being added up, and some that devices are late for
_SMALL_BODY = 1 << 18  # bytes that are checked and hashed faster than a thread can be asked to


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    """What a party is made of."""

    role: int
    task: TaskSpec
    ledger: Ledger
    models: ModelStore
    shares: ShareStore
    workers: Workers
    ticket_key: Ed25519PublicKey
    metrics: Metrics = field(default_factory=Metrics)
    clock: Clock = time.time
    keep_rounds: int = 3
    backend: Backend | None = None


class Party:
    """One server's memory and arithmetic for one task."""

    def __init__(self, parts: Parts) -> None:
        self.role, self.task, self.ledger = parts.role, parts.task, parts.ledger
        self.models, self.workers, self.clock = parts.models, parts.workers, parts.clock
        self._shares, self.tickets, self._backend = parts.shares, TicketCheck(parts.ticket_key), parts.backend
        self.metrics, self._keep_rounds = parts.metrics, parts.keep_rounds
        self._evaluations: dict[bytes, asyncio.Future[Evaluation]] = {}
        self._sizes = Sizes.of(parts.task)
        self._refusals_before: dict[str, int] = {}  # when the last round ended
        self._macs = UploadMacs(parts.ledger)
        self._read_tickets = TicketCheck(parts.ticket_key, domain=READ_DOMAIN)
        self._sharing: dict[bytes, asyncio.Task[bytes]] = {}
        self._spend = asyncio.Lock()
        self.spending = Spending(parts.task, parts.ledger, parts.workers, parts.metrics)

    async def start(self) -> None:
        """Make sure that the task and its first model are recorded, and that its promises can be accounted for."""
        await self.spending.standing()
        await self.ledger.add_task(self.task.task_id, self.task.encode(), self.clock())
        if await self.ledger.published_version(self.task.task_id) is None:
            await self.install(await self.workers.run(self._first_model))

    def _first_model(self) -> Model:
        if self.models.latest() is not None:
            return self.models.load(0)  # imported before the first start
        task = self.task
        shape, scale = Shape.of(task), decimal(task.initial_scale)
        return initial_model(task.task_id, shape, seed=task.seed, scale=scale, bias_column=True, dense_scale=scale)

    async def readiness(self) -> list[Check]:
        """Return what must hold before devices are sent here, and what to do where it does not."""
        try:
            await self.ledger.ping()
            published = await self.ledger.published_version(self.task.task_id)
        except LedgerUnavailableError:
            return [Check("ledger", False, "the database does not answer; see [ledger] url")]
        held = published is not None and published.version in self.models.versions()
        hint = "the published model is missing in data_dir; restore it from the other server or a backup"
        return [Check("ledger", True, ""), Check("model", held, "" if held else hint)]

    async def install(self, model: Model) -> None:
        """Store a model and make it the published version."""
        digest = await self.workers.run(lambda: self.models.save(model))
        now = self.clock()
        await self.ledger.record_version(self.task.task_id, model.version, digest, now)
        await self.publish(model.version)

    async def publish(self, version: int) -> None:
        """Let devices see a recorded version."""
        await self.ledger.publish_version(self.task.task_id, version, self.clock())
        self.metrics.model_version(version)

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
        """Move a round one state on, and tell the operator, with remarks that the round itself does not keep."""
        ends = {"refused": self.refusals()} if to in ENDED else {}
        counted = self.metrics.refusals()
        record = await self.ledger.advance(round_id, expect, to, now, remarks={**(remarks or {}), **ends}, **facts)
        self.metrics.round_phase(expect.value, max(0.0, now - _entered(record, expect)))
        if record.ended:
            self.metrics.round_ended(to.value)
            self._refusals_before = counted
        return record

    def refusals(self) -> dict[str, int]:
        """Return how often each kind of request was refused since a round last ended here, or since the start."""
        before = self._refusals_before
        return {slug: more for slug, count in self.metrics.refusals().items() if (more := count - before.get(slug, 0))}

    async def tidy(self) -> None:
        """Forget what ended rounds no longer need: bodies, shares, old models. Digests of sessions stay."""
        await self.ledger.forget_bodies(keep_last_rounds=self._keep_rounds)
        kept = await self.ledger.rounds(self.task.task_id, limit=self._keep_rounds + 1)
        await self.workers.run(lambda: self._shares.prune({record.round_id for record in kept}))
        wanted = await self.ledger.open_rollback(self.task.task_id)
        protected = [wanted.source] if wanted is not None else []
        await self.workers.run(lambda: self.models.prune(keep=3, protect=protected))

    async def round(self, round_id: bytes) -> tuple[RoundRecord, RoundSpec]:
        """Return a round of this task and its specification."""
        record = await self.ledger.round(round_id)
        if record is None or record.task_id != self.task.task_id:
            raise UnknownRoundError("this server does not know that round; join the current one")
        return record, RoundSpec.decode(record.spec, self.task)

    async def spec(self, round_id: bytes) -> RoundSpec:
        """Return the specification of a round that sessions are served in."""
        return (await self._evaluation(round_id)).round

    async def keys(self, round_id: bytes, session_id: bytes, ticket: str, read: ReadBody) -> bytes:
        """Take a session's KEYS message and return its ANSWER, once the keys are durable."""
        self.tickets.check(ticket, round_id, session_id, self.clock())
        with self.workers.place():
            evaluation = await self._evaluation(round_id)
            body = await read(self._sizes.keys)
            upload, answer = await self._compute("answer", lambda: _answered(evaluation, session_id, body))
            admitted = self.role == 0  # server 0 knows who has joined
            stored = await self.ledger.put_keys(
                upload, self.clock(), require_admission=admitted, limit=self.task.cohort
            )
            self._count("keys", stored)
            self._macs.remember(upload)
            return answer

    async def read_rows(self, round_id: bytes, session_id: bytes, ticket: str, read: ReadBody) -> bytes:
        """Return the ANSWER to a KEYS message of which nothing is kept: no update can follow it."""
        self._read_tickets.check(ticket, round_id, session_id, self.clock())
        with self.workers.place():
            evaluation = await self._evaluation(round_id)
            # Harmless while the device draws new seeds, and a sign that it may not have: docs/reference/protocol.md.
            if await self.ledger.knows_session(session_id):
                raise SessionConflictError("this session takes part in a round; draw a new one to read")
            body = await read(self._sizes.keys)
            return await self._compute("answer", lambda: evaluation.answer(session_id, body))

    async def update(self, round_id: bytes, session_id: bytes, ticket: str, read: ReadUpload) -> Kept:
        """Take a session's upload from whoever made its keys, and return what is now durable."""
        try:
            self.tickets.check(ticket, round_id, session_id, self.clock())
        except TicketExpiredError:
            # Who has lost the receipt may still learn that the upload is here; nothing new is stored for it.
            if not await self.ledger.has_update(round_id, session_id):
                raise
        with self.workers.place():
            evaluation = await self._evaluation(round_id)
            sent = await read(upload_bytes(evaluation.round, self.role))
            upload = await self._check_update(evaluation, session_id, sent.message)
            hold = await self._macs.check(evaluation.round, upload, sent.mac)
            self._count("update", await self.ledger.put_update(upload, self.clock()))
            return Kept(upload.body_digest, hold)

    async def _check_update(self, evaluation: Evaluation, session_id: bytes, body: bytes) -> Upload:
        if len(body) <= _SMALL_BODY:
            return _checked_update(evaluation, session_id, body)
        return await self.workers.run(lambda: _checked_update(evaluation, session_id, body))

    def _count(self, phase: str, stored: Stored) -> None:
        _refuse_unless_stored(stored)
        if stored is Stored.STORED:
            self.metrics.session(phase)

    async def share(self, round_id: bytes) -> bytes:
        """Return this party's share of a sealed round: computed once, stored, and the same bytes ever after."""
        # Noise is drawn once: who asks meanwhile waits for the same bytes, and who goes away does not cut it short.
        sharing = self._sharing.get(round_id)
        if sharing is None:
            sharing = self._sharing[round_id] = asyncio.create_task(self._share(round_id))
            sharing.add_done_callback(lambda done: self._forget_sharing(round_id, done))
        return await asyncio.shield(sharing)

    def _forget_sharing(self, round_id: bytes, done: "asyncio.Task[bytes]") -> None:
        del self._sharing[round_id]
        if not done.cancelled():
            done.exception()  # told to whoever waited; where nobody did, the next step finds it again

    async def _share(self, round_id: bytes) -> bytes:
        record, spec = await self.round(round_id)
        if record.ended and not self._shares.has(round_id):
            raise RoundClosedError("this round is over, and its share is no longer kept")
        if record.share_digest is not None:
            digest = record.share_digest
            return await self.workers.run(lambda: self._shares.load(round_id, digest))
        if record.state is not RoundState.SEALED or record.sealed_sessions is None:
            raise SessionError("this round is not sealed: its sum stays closed")
        async with self._spend:  # what is left is looked at and spent in one go, whichever rounds are asked for
            await self.spending.require(spec.kind)
            data, digest = await self._stored_share(record, spec)
            await self.advance(round_id, RoundState.SEALED, RoundState.SHARED, self.clock(), share_digest=digest)
            await self.spending.standing()
        return data

    async def _stored_share(self, record: RoundRecord, spec: RoundSpec) -> tuple[bytes, bytes]:
        """Return the share and its digest once it is on the disk; one that is there already is not made anew."""
        round_id, sealed = record.round_id, record.list_digest or b""
        found = await self.workers.run(lambda: self._shares.find(round_id, sealed))
        if found is not None:
            return found, await self.workers.run(lambda: hashlib.sha256(found).digest())
        data = await self._compute_share(record, spec)
        return data, await self.workers.run(lambda: self._shares.save(round_id, sealed, data))

    async def _compute_share(self, record: RoundRecord, spec: RoundSpec) -> bytes:
        evaluation, share = await self._evaluation(record.round_id), Share.empty(spec)
        async for batch in self.ledger.bodies(record.round_id, record.sealed_sessions or (), batch=BATCH):
            sessions = [(one.session_id, one.keys, one.update) for one in batch]
            await self._compute("accumulate", partial(evaluation.add, sessions, share))
        await self._compute("noise", partial(blur, spec, share))
        return await self.workers.run(share.encode)

    async def _compute(self, operation: str, work: Callable[[], Result]) -> Result:
        """Run the kernel in a worker and count its time."""

        def timed() -> Result:
            with self.metrics.kernel(operation):
                return work()

        return await self.workers.run(timed)

    async def _evaluation(self, round_id: bytes) -> Evaluation:
        """Return what is prepared once for all sessions of a round, however many ask for it at the same time."""
        preparing = self._evaluations.pop(round_id, None)
        if preparing is None:
            preparing = asyncio.ensure_future(self._prepare(round_id))
            preparing.add_done_callback(lambda done: self._forget_failed(round_id, done))
        self._evaluations[round_id] = preparing  # the last is the one that was asked for last
        while len(self._evaluations) > _KEPT_EVALUATIONS:
            self._evaluations.pop(next(iter(self._evaluations)))
        return preparing.result() if preparing.done() else await asyncio.shield(preparing)

    def _forget_failed(self, round_id: bytes, done: "asyncio.Future[Evaluation]") -> None:
        if (done.cancelled() or done.exception() is not None) and self._evaluations.get(round_id) is done:
            del self._evaluations[round_id]

    async def _prepare(self, round_id: bytes) -> Evaluation:
        """Load the model, tag its rows and deal the items; a fraction of a second, once a round."""
        record, spec = await self.round(round_id)
        if record.ended and record.model_version not in self.models.versions():
            raise RoundClosedError("this round is over; join the current one")
        return await self._compute("prepare", lambda: self._make_evaluation(spec))

    def _make_evaluation(self, spec: RoundSpec) -> Evaluation:
        model = self.models.load(spec.model_version)
        evaluation = Evaluation(spec, self.role, reading.tag_rows(spec, model.rows, self._backend), self._backend)
        _ = spec.leaf_table
        return evaluation


def _answered(evaluation: Evaluation, session_id: bytes, body: bytes) -> tuple[Upload, bytes]:
    """Check a KEYS message and answer it; nothing is said before the keys are stored."""
    public = evaluation.check_keys(session_id, body)
    return _upload(evaluation, session_id, public, body), evaluation.answer(session_id, body)


def _checked_update(evaluation: Evaluation, session_id: bytes, body: bytes) -> Upload:
    return _upload(evaluation, session_id, evaluation.check_update(session_id, body), body)


def _entered(record: RoundRecord, state: RoundState) -> float:
    """Return when a round entered a state that it has left."""
    times = {
        RoundState.OPEN: record.opened_at,
        RoundState.SEALING: record.sealing_at,
        RoundState.SEALED: record.sealed_at,
        RoundState.SHARED: record.shared_at,
        RoundState.RECONSTRUCTED: record.reconstructed_at,
    }
    return times.get(state) or record.opened_at


def _upload(evaluation: Evaluation, session_id: bytes, public: bytes, body: bytes) -> Upload:
    return Upload(
        round_id=evaluation.round.digest,
        session_id=session_id,
        body_digest=hashlib.sha256(body).digest(),
        public_digest=public,
        body=body,
    )


def _refuse_unless_stored(stored: Stored) -> None:
    match stored:
        case Stored.STORED | Stored.SAME:
            return
        case Stored.CLOSED | Stored.FULL:
            raise RoundClosedError("this round takes nothing new; join the current one")
        case Stored.DIFFERENT | Stored.OTHER_ROUND:
            raise SessionConflictError("other bytes of this session are here; a session is never sent anew")
        case Stored.UNKNOWN | Stored.NO_KEYS:
            raise UnknownSessionError("this session has not come so far; join and send its keys first")
