"""Joining: a device with an enrolment token gets a ticket for one session of the open round, or only to read."""

import asyncio
import hashlib
import math
from dataclasses import dataclass

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from secemb_party.errors import (
    PeerRefusedError,
    PeerUnavailableError,
    SessionConflictError,
    TokenExpiredError,
    TokenRevokedError,
    UnauthorizedError,
)
from secemb_party.ledger import Admission, RoundRecord, RoundState, TokenState
from secemb_party.parts import Clock
from secemb_party.service import Party
from secemb_party.tickets import READ_DOMAIN, Claim, issue_ticket
from secemb_server0.leader import Leader
from secemb_server0.peer import RelayLine
from secemb_shared.errors import MessageError
from secemb_shared.messages import TaskSpec
from secemb_shared.messages.relay_key import RelayKey

FRESH_SECONDS = 60.0
AWAY_SECONDS = 3.0  # after a failure, so that not every join waits for a connection timeout


class AnnouncedKey:
    """Server 1's latest relay key announcement, fetched again when it is old."""

    def __init__(self, task: TaskSpec, line: RelayLine, clock: Clock) -> None:
        self._task, self._line, self._clock = task, line, clock
        self._data, self._ends, self._asked = b"", 0.0, float("-inf")
        self._failed = float("-inf")
        self._asking = asyncio.Lock()

    async def get(self) -> bytes:
        """Return the announcement; while server 1 is unavailable, the old one as long as it is valid."""
        if self._clock() - self._asked < FRESH_SECONDS:
            return self._data
        async with self._asking:
            if self._clock() - self._asked >= FRESH_SECONDS:
                await self._ask()
        return self._data

    def forget(self) -> None:
        """Fetch it again next time: server 1 no longer uses this key."""
        self._asked = float("-inf")

    async def _ask(self) -> None:
        if self._clock() - self._failed < AWAY_SECONDS:
            raise PeerUnavailableError("server 1 did not answer a moment ago")
        try:
            data = await self._line.relay_key()
        except PeerUnavailableError:
            if not self._data or self._clock() >= self._ends:
                self._failed = self._clock()
                raise
        else:
            self._data, self._ends = data, self._check(data)
        self._asked = self._clock()

    def _check(self, data: bytes) -> float:
        try:
            return RelayKey.read(self._task, data).not_after
        except MessageError:
            raise PeerRefusedError(
                "server 1's identity is not the task's relay_key; compare `secemb relay-key list` with the task"
            ) from None


READ_SECONDS = 120  # how long a read ticket is valid
_LONGEST = 60  # seconds until a device should try again


@dataclass(frozen=True, slots=True)
class JoinTicket:
    """A device takes part."""

    round: str  # canonical form of the round
    ticket: str
    upload_until: float


@dataclass(frozen=True, slots=True)
class ReadTicket:
    """A device may read rows."""

    round: str  # canonical form of the round whose model is read
    ticket: str
    read_until: float


@dataclass(frozen=True, slots=True)
class NotNow:
    """No round can be joined now; try again after this time."""

    seconds: int


class TicketIssuer:
    """Decides which devices may take part and in which round, and gives them tickets."""

    def __init__(self, party: Party, leader: Leader, key: Ed25519PrivateKey, *, open_enrolment: bool) -> None:
        self._party, self._leader, self._key, self._open = party, leader, key, open_enrolment

    async def join(self, token: str | None, session_id: bytes) -> JoinTicket | NotNow:
        """Give a device its ticket: one session per device and round; the same session gets the same ticket again."""
        device = await self._device(token, session_id)
        record, now = self._leader.announced, self._party.steady()
        if record is None:
            return NotNow(_LONGEST if self._leader.finished else 1)
        deadlines = self._leader.timer.of(record)
        if now >= deadlines.join_until and not await self._party.ledger.knows_session(session_id):
            return NotNow(_until(deadlines.upload_until, now))  # a session that was admitted may have lost the answer
        admission = await self._party.ledger.admit(
            record.round_id, session_id, device=device, limit=self._party.task.cohort, now=self._party.clock()
        )
        return self._answer(admission, record, session_id, _until(deadlines.upload_until, now))

    async def read(self, token: str | None, session_id: bytes) -> ReadTicket | NotNow:
        """Give a device a ticket to read in the latest round that server 1 knows too, open or not; store nothing."""
        await self._device(token, session_id)
        announced, until = self._leader.announced, math.ceil(self._party.clock() + READ_SECONDS)
        for record in await self._party.ledger.rounds(self._party.task.task_id, limit=2):
            if record.state is not RoundState.OPEN or (announced and announced.round_id == record.round_id):
                ticket = issue_ticket(self._key, record.round_id, session_id, until, domain=READ_DOMAIN)
                return ReadTicket(record.spec.decode(), ticket, until)
        return NotNow(1)

    def _answer(self, admission: Admission, record: RoundRecord, session_id: bytes, later: int) -> JoinTicket | NotNow:
        match admission:
            case Admission.ADMITTED | Admission.ALREADY:
                expires = math.ceil(record.upload_until)
                ticket = issue_ticket(self._key, record.round_id, session_id, expires)
                self._party.intake.tickets.remember(Claim(record.round_id, session_id, ticket), expires)
                return JoinTicket(record.spec.decode(), ticket, record.upload_until)
            case Admission.SESSION_TAKEN:
                raise SessionConflictError("this session id is in use; draw a new one")
            case _:
                return NotNow(later)

    async def _device(self, token: str | None, session_id: bytes) -> bytes:
        """Return the name under which this device is known: the hash of its first token."""
        if self._open:
            return hashlib.sha256(b"open" + session_id).digest()
        hashed = hashlib.sha256((token or "").encode()).digest()
        known = await self._party.ledger.token(hashed)
        if token is None or known is None:
            raise UnauthorizedError("no valid enrolment token; ask the operator of server 0 for one")
        match known.state(self._party.clock()):
            case TokenState.EXPIRED:
                raise TokenExpiredError("this enrolment token has expired; open the device's home with its next one")
            case TokenState.REVOKED:
                raise TokenRevokedError("this enrolment token was revoked; ask the operator of server 0")
        return known.device


def _until(time: float, now: float) -> int:
    return max(1, min(_LONGEST, math.ceil(time - now)))
