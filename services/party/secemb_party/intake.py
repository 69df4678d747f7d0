"""Intake of sessions' messages: keys and updates are checked, stored, and acknowledged once durable.

When the disk is nearly full, no new session can begin, so that the sessions that have begun can be completed.
"""

import hashlib
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import partial
from typing import Generic, Protocol, TypeVar

from secemb_party.compute import Accepted, PreparedRound
from secemb_party.errors import (
    RoundClosedError,
    RoundFullError,
    SessionConflictError,
    TicketError,
    TicketExpiredError,
    UnknownSessionError,
)
from secemb_party.evaluation import KeysMessage, check_update, upload_bytes
from secemb_party.ledger import Stored, Upload
from secemb_party.metrics import Transport
from secemb_party.parts import Parts
from secemb_party.room import Space
from secemb_party.tickets import CLOCK_TOLERANCE, READ_DOMAIN, Claim, TicketCheck
from secemb_party.upload_macs import Kept, Sent, UploadMacs
from secemb_shared.messages import RoundSpec, Sizes

Message = TypeVar("Message")
Taken = TypeVar("Taken")
Message_contra = TypeVar("Message_contra", contravariant=True)
Taken_co = TypeVar("Taken_co", covariant=True)

# Limit on sessions per round whose keys server 1 stores: a multiple of the cohort, plus a constant. Server 1 does not
# know which of them server 0 has refused, or which will not continue.
_SEATS_THERE, _MORE_THERE = 8, 1000
_READS = 8  # answers per read ticket, because its device may not have received the first ones
_READERS = 100_000  # number of read sessions whose answers are counted


class Seating(Protocol):
    """The seats of the open round, which server 0 assigns to sessions with keys."""

    @property
    def limit(self) -> int:
        """Return the number of seats."""

    def is_full(self, round_id: bytes) -> bool:
        """Return whether all seats may be taken, as far as is known without reading the ledger."""

    def take(self, round_id: bytes) -> None:
        """Record that a session has taken a seat."""

    def refusal(self) -> RoundFullError:
        """Return the error for a session that arrives too late for a seat, with the time of the next attempt."""


class Take(Protocol[Message_contra, Taken_co]):
    """Checks and stores a message."""

    def __call__(self, message: Message_contra, agreed: Awaitable[object] | None = None, /) -> Awaitable[Taken_co]:
        """Return the reply to the sender; nothing is stored until `agreed` has completed without an error."""


@dataclass(frozen=True, slots=True, repr=False)
class Expected(Generic[Message, Taken]):
    """An expected message of a session whose ticket is valid: read it, then pass it in."""

    spec: RoundSpec
    length: int  # of the message, in bytes
    take: "Take[Message, Taken]"


class Intake:
    """Accepts the messages of one task's sessions, both direct and relayed."""

    def __init__(
        self,
        parts: Parts,
        prepared: Callable[[bytes], Awaitable[PreparedRound]],
        space: Space,
        complete: Callable[[RoundSpec, bytes], None],
    ) -> None:
        self._role, self._task, self._ledger, self._clock = parts.role, parts.task, parts.ledger, parts.clock
        self._workers, self._metrics, self._prepared = parts.workers, parts.metrics, prepared
        self._space, self._complete = space, complete
        self.seating: Seating | None = None  # only on server 0, which knows who has joined
        self._reads: Counter[bytes] = Counter()  # answers per read session
        self._sizes = Sizes.of(parts.task)
        self._macs = UploadMacs(parts.ledger)
        # Server 0 sets the expiry of tickets. Their permission ends with the round, on both servers at the same time.
        tolerance = CLOCK_TOLERANCE if parts.role == 1 else 0.0
        self.tickets = TicketCheck(parts.ticket_key, tolerance=tolerance)
        self._read_tickets = TicketCheck(parts.ticket_key, domain=READ_DOMAIN, tolerance=tolerance)

    async def expect_keys(self, claim: Claim, transport: Transport = "direct") -> Expected[bytes, bytes]:
        """Expect a session's KEYS message; accepting it returns the ANSWER once the keys are durable."""
        self._space.require()
        self.tickets.check(claim, self._clock())
        prepared, seating = await self._prepared(claim.round_id), self.seating
        if seating is not None and seating.is_full(claim.round_id):  # before a device sends keys that would be refused
            found = claim.round_id, claim.session_id, self._clock()
            if await self._ledger.turn_away(*found, limit=seating.limit):
                raise seating.refusal()

        async def take(body: bytes, agreed: Awaitable[object] | None = None) -> bytes:
            [accepted] = await prepared.accept([KeysMessage(claim.session_id, body)])
            if agreed is not None:
                await agreed
            upload = _keys_upload(claim, body, accepted)
            stored = await self._ledger.put_keys(
                upload,
                self._clock(),
                require_admission=self._role == 0,  # only server 0 knows who has joined
                limit=_SEATS_THERE * self._task.cohort + _MORE_THERE if seating is None else seating.limit,
            )
            self._count("keys", transport, stored)
            if seating is not None and stored is Stored.STORED:
                seating.take(claim.round_id)
            self._macs.remember(upload)
            return accepted.answer

        return Expected(prepared.spec, self._sizes.keys, take)

    async def expect_rows(self, claim: Claim) -> Expected[bytes, bytes]:
        """Expect a KEYS message that is answered but not stored: no update can follow it."""
        self._read_tickets.check(claim, self._clock())
        prepared = await self._prepared(claim.round_id)
        # Harmless if the device draws new seeds, and a sign that it may not have: docs/reference/protocol.md.
        if await self._ledger.knows_session(claim.session_id):
            raise SessionConflictError("this session belongs to a round; use a new session for private reads")

        async def take(body: bytes, _: Awaitable[object] | None = None) -> bytes:  # nothing is stored
            self._count_read(claim.session_id)
            [answer] = await prepared.answer([KeysMessage(claim.session_id, body)])
            return answer

        return Expected(prepared.spec, self._sizes.keys, take)

    async def expect_update(self, claim: Claim, transport: Transport = "direct") -> Expected[Sent, Kept]:
        """Expect a session's upload; accepting it checks who made it, and returns what is durable then."""
        try:
            self.tickets.check(claim, self._clock())
        except TicketExpiredError:
            # A device that did not get the receipt can still learn that its upload is here; nothing new is stored for
            # it.
            if not await self._ledger.has_update(claim.round_id, claim.session_id):
                raise
        spec = (await self._prepared(claim.round_id)).spec

        async def take(sent: Sent, agreed: Awaitable[object] | None = None) -> Kept:
            check = partial(_checked_update, spec, self._role, claim.session_id, sent.message)
            upload = await self._workers.run(check, size=len(sent.message))
            hold = await self._macs.check(spec, upload, sent.mac)
            if agreed is not None:
                await agreed
            most = self._task.cohort if self._role == 0 else None  # seats may outnumber the cohort
            stored = await self._ledger.put_update(upload, self._clock(), limit=most)
            self._count("update", transport, stored)
            if stored is Stored.STORED:
                self._complete(spec, claim.session_id)
            return Kept(upload.body_digest, hold)

        return Expected(spec, upload_bytes(spec, self._role), take)

    def _count_read(self, session_id: bytes) -> None:
        """Count an answer to a read ticket: otherwise one ticket would bypass server 0's limit on the rate of reads."""
        if len(self._reads) > _READERS:
            self._reads.clear()  # tickets are valid for two minutes
        self._reads[session_id] += 1
        if self._reads[session_id] > _READS:
            raise TicketError(f"this read ticket has been used {_READS} times; request a new one")

    def _count(self, phase: str, transport: Transport, stored: Stored) -> None:
        if stored is Stored.FULL and self.seating is not None:
            raise self.seating.refusal()
        _refuse_unless_stored(stored)
        if stored is Stored.STORED:
            self._metrics.session(phase, transport=transport)


def _keys_upload(claim: Claim, body: bytes, accepted: Accepted) -> Upload:
    return Upload(
        round_id=claim.round_id,
        session_id=claim.session_id,
        body_digest=accepted.body_digest,
        public_digest=accepted.public_digest,
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


def _refuse_unless_stored(stored: Stored) -> None:
    match stored:
        case Stored.STORED | Stored.SAME:
            return
        case Stored.CLOSED | Stored.FULL:
            raise RoundClosedError("this round no longer accepts messages; join the current one")
        case Stored.DIFFERENT | Stored.OTHER_ROUND:
            raise SessionConflictError("this session has already sent different bytes; start a new session")
        case Stored.UNKNOWN | Stored.NO_KEYS:
            raise UnknownSessionError("no keys have been received for this session; join and send them first")
