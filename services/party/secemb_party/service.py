"""What both servers do: take a session's keys and update, store them, and compute the share of the sum.

The event loop waits, the workers compute, the ledger remembers. Nothing is acknowledged before it is durable, and every
decision is made in one of the ledger's transactions, so that a crash loses nothing that was acknowledged.
"""

import asyncio
import hashlib
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Generic, NamedTuple, TypeVar

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

from secemb_party.async_cache import AsyncCache
from secemb_party.budget import Spending
from secemb_party.compute import Answer, Compute, PreparedRound
from secemb_party.compute.threads import Workers
from secemb_party.errors import (
    LedgerUnavailableError,
    RoundClosedError,
    SessionConflictError,
    TicketExpiredError,
    UnknownRoundError,
    UnknownSessionError,
)
from secemb_party.evaluation import KeysMessage, check_update, upload_bytes
from secemb_party.ledger import Ledger, RoundRecord, RoundState, Stored, Upload
from secemb_party.ledger.records import ENDED
from secemb_party.metrics import Metrics, Transport
from secemb_party.storage import Model, ModelStore, ShareStore, first_model
from secemb_party.storage.table_copies import Body
from secemb_party.tickets import READ_DOMAIN, Claim, TicketCheck
from secemb_party.upload_macs import Kept, Sent, UploadMacs
from secemb_shared.errors import SessionError
from secemb_shared.messages import RoundSpec, Sizes, TaskSpec

Clock = Callable[[], float]
Message = TypeVar("Message")
Taken = TypeVar("Taken")
_KEPT_ROUNDS = 4  # the round that is open, the one that is being added up, and some that devices are late for


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    """What a party is made of."""

    role: int
    task: TaskSpec
    ledger: Ledger
    models: ModelStore
    shares: ShareStore
    workers: Workers
    compute: Compute
    ticket_key: Ed25519PublicKey
    scratch: Path  # a folder for files that do not outlive the process
    catalogue: Body | None = None  # ids and titles of the task's items
    metrics: Metrics = field(default_factory=Metrics)
    clock: Clock = time.time
    keep_rounds: int = 3


class Check(NamedTuple):
    """One thing that a server needs. The hint is public: it names the fix, never an address or a secret."""

    check: str
    ok: bool
    hint: str


@dataclass(frozen=True, slots=True, repr=False)
class Place(Generic[Message, Taken]):
    """A place in the queue for one message of a session whose ticket is valid: read the message, then hand it in."""

    spec: RoundSpec
    length: int  # of the message, in bytes
    take: Callable[[Message], Awaitable[Taken]]


class Party:
    """One server's memory and arithmetic for one task."""

    def __init__(self, parts: Parts) -> None:
        self.role, self.task, self.ledger = parts.role, parts.task, parts.ledger
        self.models, self.workers, self.clock = parts.models, parts.workers, parts.clock
        self._shares, self.tickets, self._compute = parts.shares, TicketCheck(parts.ticket_key), parts.compute
        self.metrics, self.scratch, self._keep_rounds = parts.metrics, parts.scratch, parts.keep_rounds
        self.catalogue = parts.catalogue
        self._prepared: AsyncCache[bytes, PreparedRound] = AsyncCache(_KEPT_ROUNDS)
        self._sizes = Sizes.of(parts.task)
        self._refusals_before: dict[str, int] = {}  # when the last round ended
        self._macs = UploadMacs(parts.ledger)
        self._read_tickets = TicketCheck(parts.ticket_key, domain=READ_DOMAIN)
        self._sharing: dict[bytes, asyncio.Task[bytes]] = {}
        self._spend = asyncio.Lock()
        self.spending = Spending(parts.task, parts.ledger, parts.workers, parts.metrics)

    async def start(self) -> None:
        """Record the task and its first model, and check that its privacy can be accounted for."""
        await self.spending.standing()
        await self.ledger.add_task(self.task.task_id, self.task.encode(), self.clock())
        if await self.ledger.published_version(self.task.task_id) is None:
            await self.install(await self.workers.run(self._first_model))

    def _first_model(self) -> Model:
        if self.models.versions():
            return self.models.load(0)  # imported before the first start
        return first_model(self.task)

    async def readiness(self) -> list[Check]:
        """Return what must hold before devices are sent here, and what to do if it does not."""
        try:
            await self.ledger.ping()
            published = await self.ledger.published_version(self.task.task_id)
        except LedgerUnavailableError:
            return [Check("ledger", False, "the database does not answer; check [ledger] url")]
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
        """Move a round to its next state and record the event, with remarks that the round itself does not keep."""
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
        """Delete what ended rounds no longer need: bodies, shares, old models. Digests of sessions stay."""
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

    @asynccontextmanager
    async def reserve_keys(self, claim: Claim, transport: Transport = "direct") -> AsyncIterator[Place[bytes, bytes]]:
        """Reserve a place for a session's KEYS message; taking it returns its ANSWER, once the keys are durable."""
        self.tickets.check(claim, self.clock())
        with self.workers.place():
            prepared = await self.prepared(claim.round_id)

            async def take(body: bytes) -> bytes:
                [answer] = await prepared.answer([KeysMessage(claim.session_id, body)])
                upload = _keys_upload(claim, body, answer)
                admitted = self.role == 0  # server 0 knows who has joined
                stored = await self.ledger.put_keys(
                    upload, self.clock(), require_admission=admitted, limit=self.task.cohort
                )
                self._count("keys", transport, stored)
                self._macs.remember(upload)
                return answer.message

            yield Place(prepared.spec, self._sizes.keys, take)

    @asynccontextmanager
    async def reserve_rows(self, claim: Claim) -> AsyncIterator[Place[bytes, bytes]]:
        """Reserve a place for a KEYS message that is answered and forgotten: no update can follow it."""
        self._read_tickets.check(claim, self.clock())
        with self.workers.place():
            prepared = await self.prepared(claim.round_id)
            # Harmless while the device draws new seeds, and a sign that it may not have: docs/reference/protocol.md.
            if await self.ledger.knows_session(claim.session_id):
                raise SessionConflictError("this session takes part in a round; draw a new one to read")

            async def take(body: bytes) -> bytes:
                [answer] = await prepared.answer([KeysMessage(claim.session_id, body)])
                return answer.message

            yield Place(prepared.spec, self._sizes.keys, take)

    @asynccontextmanager
    async def reserve_update(self, claim: Claim, transport: Transport = "direct") -> AsyncIterator[Place[Sent, Kept]]:
        """Reserve a place for a session's upload; taking it checks who made it, and returns what is durable then."""
        try:
            self.tickets.check(claim, self.clock())
        except TicketExpiredError:
            # A device that lost the receipt may still learn that its upload is here; nothing new is stored for it.
            if not await self.ledger.has_update(claim.round_id, claim.session_id):
                raise
        with self.workers.place():
            spec = (await self.prepared(claim.round_id)).spec

            async def take(sent: Sent) -> Kept:
                check = partial(_checked_update, spec, self.role, claim.session_id, sent.message)
                upload = await self.workers.run(check, size=len(sent.message))
                hold = await self._macs.check(spec, upload, sent.mac)
                self._count("update", transport, await self.ledger.put_update(upload, self.clock()))
                return Kept(upload.body_digest, hold)

            yield Place(spec, upload_bytes(spec, self.role), take)

    def _count(self, phase: str, transport: Transport, stored: Stored) -> None:
        _refuse_unless_stored(stored)
        if stored is Stored.STORED:
            self.metrics.session(phase, transport=transport)

    async def share(self, round_id: bytes) -> bytes:
        """Return this party's share of a sealed round: it is computed once, stored, and never changes."""
        # Noise is drawn once: concurrent callers wait for the same bytes, and a caller that leaves does not cancel it.
        sharing = self._sharing.get(round_id)
        if sharing is None:
            sharing = self._sharing[round_id] = asyncio.create_task(self._share(round_id))
            sharing.add_done_callback(lambda done: self._forget_sharing(round_id, done))
        return await asyncio.shield(sharing)

    def _forget_sharing(self, round_id: bytes, done: "asyncio.Task[bytes]") -> None:
        del self._sharing[round_id]
        if not done.cancelled():
            done.exception()  # raised to every caller that waited; without one, the next call raises it again

    async def _share(self, round_id: bytes) -> bytes:
        record, spec = await self.round(round_id)
        if record.ended and not self._shares.has(round_id):
            raise RoundClosedError("this round has ended, and its share is no longer kept")
        if record.share_digest is not None:
            digest = record.share_digest
            return await self.workers.run(lambda: self._shares.load(round_id, digest))
        if record.state is not RoundState.SEALED or record.sealed_sessions is None:
            raise SessionError("this round is not sealed yet; its sum is computed after the seal")
        async with self._spend:  # the budget is checked and spent together, whichever rounds are asked for
            await self.spending.require(spec.kind)
            data, digest = await self._stored_share(record, spec)
            await self.advance(round_id, RoundState.SEALED, RoundState.SHARED, self.clock(), share_digest=digest)
            await self.spending.standing()
        return data

    async def _stored_share(self, record: RoundRecord, spec: RoundSpec) -> tuple[bytes, bytes]:
        """Return the share and its digest once it is on disk; a share that is there already is not computed again."""
        round_id, sealed = record.round_id, record.list_digest or b""
        found = await self.workers.run(lambda: self._shares.find(round_id, sealed))
        if found is not None:
            return found, await self.workers.run(lambda: hashlib.sha256(found).digest())
        data = await self._compute_share(record)
        return data, await self.workers.run(lambda: self._shares.save(round_id, sealed, data))

    async def _compute_share(self, record: RoundRecord) -> bytes:
        total = (await self.prepared(record.round_id)).sum()
        sessions = record.sealed_sessions or ()
        async for batch in self.ledger.read_bodies(record.round_id, sessions, batch=self._compute.batch):
            await total.add(batch)
        return await total.share()

    async def prepared(self, round_id: bytes) -> PreparedRound:
        """Return what is prepared once for all sessions of a round."""
        return await self._prepared.get(round_id, lambda: self._prepare(round_id))

    async def _prepare(self, round_id: bytes) -> PreparedRound:
        record, spec = await self.round(round_id)
        if record.ended and record.model_version not in self.models.versions():
            raise RoundClosedError("this round has ended; join the current one")
        model = await self.workers.run(lambda: self.models.load(spec.model_version))
        return await self._compute.prepare(spec, model.rows)


def _keys_upload(claim: Claim, body: bytes, answer: Answer) -> Upload:
    return Upload(
        round_id=claim.round_id,
        session_id=claim.session_id,
        body_digest=answer.body_digest,
        public_digest=answer.public_digest,
        body=body,
    )


def _checked_update(spec: RoundSpec, role: int, session_id: bytes, body: bytes) -> Upload:
    return Upload(
        round_id=spec.digest,
        session_id=session_id,
        body_digest=hashlib.sha256(body).digest(),
        public_digest=check_update(spec, role, session_id, body),
        body=body,
    )


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


def _refuse_unless_stored(stored: Stored) -> None:
    match stored:
        case Stored.STORED | Stored.SAME:
            return
        case Stored.CLOSED | Stored.FULL:
            raise RoundClosedError("this round accepts nothing new; join the current one")
        case Stored.DIFFERENT | Stored.OTHER_ROUND:
            raise SessionConflictError("this session already sent other bytes; use a new session")
        case Stored.UNKNOWN | Stored.NO_KEYS:
            raise UnknownSessionError("this session has no keys here; join and send them first")
