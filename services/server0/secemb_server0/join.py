"""Joining: a device with an enrolment token gets a ticket for one session of the open round, or only to read."""

import asyncio
import hashlib
import math
from dataclasses import dataclass

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from secemb_party.ended_rounds import EndedRounds
from secemb_party.errors import (
    PeerRefusedError,
    PeerUnavailableError,
    RoundFullError,
    SessionConflictError,
    TokenExpiredError,
    TokenRevokedError,
    TokenSuspendedError,
    UnauthorizedError,
)
from secemb_party.ledger import Admission, RoundRecord, RoundState, Token, TokenState, Window
from secemb_party.parts import Clock
from secemb_party.service import Party
from secemb_party.tenancy.errors import TaskEndedError
from secemb_party.tickets import READ_DOMAIN, Claim, issue_ticket
from secemb_server0.leader import Leader
from secemb_server0.pace import Pace
from secemb_server0.peer import RelayLine
from secemb_server0.seats import READS_PER_MINUTE, ReadRate, back_off
from secemb_shared.errors import MessageError
from secemb_shared.messages import TaskSpec
from secemb_shared.messages.relay_key import RelayKey

FRESH_SECONDS = 60.0
AWAY_SECONDS = 3.0  # after a failure, so that not every join waits for a connection timeout


class AnnouncedKey:
    """Server 1's latest relay key announcement, refreshed when it is old."""

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
        """Fetch the announcement again next time: server 1 no longer uses this key."""
        self._asked = float("-inf")

    async def _ask(self) -> None:
        if self._clock() - self._failed < AWAY_SECONDS:
            raise PeerUnavailableError("server 1 did not respond to a recent call")
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
                "server 1's identity does not match the task's relay_key; compare `secemb relay-key list` with the task"
            ) from None


READ_SECONDS = 120  # how long a read ticket is valid


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
    held_back: bool = False  # because this device joined rounds and then sent nothing


class TicketIssuer:
    """Decides which devices may take part and in which round, and gives them tickets."""

    def __init__(
        self,
        party: Party,
        leader: Leader,
        key: Ed25519PrivateKey,
        *,
        open_enrolment: bool,
        pace: Pace,
        reads_per_minute: int = READS_PER_MINUTE,
    ) -> None:
        self._party, self._leader, self._key, self._open, self._pace = party, leader, key, open_enrolment, pace
        self._reads = ReadRate(reads_per_minute, party.steady)
        party.intake.seating = self

    async def join(self, token: str | None, session_id: bytes) -> JoinTicket | NotNow:
        """Give a device its ticket, for one session per device and round; the same session gets a ticket again.

        A device that cannot join now is turned away before the ledger or its token is checked.
        """
        door, now, task = self._leader.door, self._party.clock(), self._party.task
        if self._leader.finished:
            raise TaskEndedError(
                "this task has ended and no more rounds will open; ask its operators for the next task"
            )
        record = door.record
        again = door.has(session_id) or await self._leader.joined_elsewhere(session_id)
        if record is None or not (again or door.lets_in(session_id, self._party.steady())):
            return self._not_now(now)
        known = await self._known(token)
        if door.for_panel and not self._is_on_panel(known):
            return self._not_now(now)
        if known is not None and not again and (wait := back_off(known.conduct, now)) > 0:
            return NotNow(math.ceil(wait), held_back=True)
        seats = self._leader.seats
        admission = await self._party.ledger.admit(
            record.round_id,
            session_id,
            device=_device(known, session_id),
            limit=seats.limit,
            waiting=seats.waiting,
            now=now,
            window=Window(now + task.join_seconds, now + task.upload_seconds),
            since=seats.since(now),
        )
        match admission:
            case Admission.ADMITTED | Admission.ALREADY:
                return self._ticket(await self._leader.admitted(record, session_id, now), session_id)
            case Admission.SESSION_TAKEN:
                raise SessionConflictError("this session id is in use; choose a new one")
            case _:
                return self._not_now(now)

    async def read(self, token: str | None, session_id: bytes) -> ReadTicket | NotNow:
        """Give a device a ticket to read in the latest round that server 1 also knows, open or not; store nothing."""
        known = await self._known(token)
        if known is not None:
            self._reads.take(known.device)
        door, until = self._leader.door, math.ceil(self._party.clock() + READ_SECONDS)
        for record in await self._party.ledger.rounds(self._party.task.task_id, limit=2):
            if record.state is not RoundState.OPEN or door.holds(record.round_id):
                ticket = issue_ticket(self._key, record.round_id, session_id, until, domain=READ_DOMAIN)
                return ReadTicket(record.spec.decode(), ticket, until)
        return self._not_now(self._party.clock())

    @property
    def limit(self) -> int:
        """Return how many seats a round has."""
        return self._leader.seats.limit

    def is_full(self, round_id: bytes) -> bool:
        """Return whether all seats of the open round may be taken."""
        return self._leader.door.holds(round_id) and self._leader.door.is_full()

    def take(self, round_id: bytes) -> None:
        """Record that a session has taken a seat."""
        self._leader.seated(round_id)

    def refusal(self) -> RoundFullError:
        """Return the error for a session that arrives too late for a seat."""
        return RoundFullError(self._not_now(self._party.clock()).seconds)

    def ended_rounds(self) -> EndedRounds | None:
        """Return how rounds ended: the same answer for every device."""
        return self._leader.ended_rounds

    def retry_after(self) -> int | None:
        """Return after how many seconds a device should retry; None if the task has ended."""
        return None if self._leader.finished else self._not_now(self._party.clock()).seconds

    def _not_now(self, now: float) -> NotNow:
        opening = self._leader.forecast.opening(self._leader.door.record, now)
        return NotNow(self._pace.seconds(opening, now, load=self._party.memory.load))

    def _ticket(self, record: RoundRecord, session_id: bytes) -> JoinTicket:
        expires = math.ceil(record.upload_until)
        ticket = issue_ticket(self._key, record.round_id, session_id, expires)
        self._party.intake.tickets.remember(Claim(record.round_id, session_id, ticket), expires)
        return JoinTicket(record.spec.decode(), ticket, record.upload_until)

    async def _known(self, token: str | None) -> Token | None:
        """Return the token of a device that may take part; None if devices need none."""
        if self._open:
            return None
        hashed = hashlib.sha256((token or "").encode()).digest()
        known = await self._party.ledger.token(hashed)
        if token is None or known is None:
            raise UnauthorizedError("the enrolment token is missing or invalid; ask the operator of server 0 for one")
        match known.state(self._party.clock()):
            case TokenState.EXPIRED:
                raise TokenExpiredError("this enrolment token has expired; open the device's home with its new token")
            case TokenState.REVOKED:
                raise TokenRevokedError("this enrolment token has been revoked; ask the operator of server 0")
            case TokenState.SUSPENDED:
                raise TokenSuspendedError("this enrolment token is suspended; ask the operator of server 0")
        return known

    def _is_on_panel(self, known: Token | None) -> bool:
        """Return whether a device is in the trusted panel; with open enrolment, no device is."""
        panel = self._leader.panel
        return known is not None and panel is not None and known.name in panel.names()


def _device(known: Token | None, session_id: bytes) -> bytes:
    """Return the name under which a device is known in rounds: the hash of its first token."""
    return known.device if known is not None else hashlib.sha256(b"open" + session_id).digest()
