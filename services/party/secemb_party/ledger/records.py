"""Records of the ledger: the states of a round, and data classes with times in seconds since 1970."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from types import MappingProxyType
from typing import Any


class RoundState(StrEnum):
    """The state of a round."""

    OPEN = "open"  # sessions are accepted
    SEALING = "sealing"  # nothing new is accepted; the two servers compare what they hold
    SEALED = "sealed"  # the list of sessions is fixed
    SHARED = "shared"  # this server's share of the sum is stored
    RECONSTRUCTED = "reconstructed"  # the sum is known and the next model exists
    PUBLISHED = "published"  # devices may see the result; the round has ended
    ABORTED = "aborted"  # the sum is never opened; the round has ended
    DISCARDED = "discarded"  # honest devices cannot have caused this sum, so it is not used; the round has ended


TRANSITIONS: Mapping[RoundState, frozenset[RoundState]] = MappingProxyType(
    {
        RoundState.OPEN: frozenset({RoundState.SEALING, RoundState.ABORTED}),
        RoundState.SEALING: frozenset({RoundState.SEALED, RoundState.ABORTED}),
        # Once the list is fixed, the other server may already have sent its share, so the round can only go forward.
        RoundState.SEALED: frozenset({RoundState.SHARED}),
        RoundState.SHARED: frozenset({RoundState.RECONSTRUCTED, RoundState.DISCARDED}),
        RoundState.RECONSTRUCTED: frozenset({RoundState.PUBLISHED}),
        RoundState.PUBLISHED: frozenset(),
        RoundState.ABORTED: frozenset(),
        RoundState.DISCARDED: frozenset(),
    }
)

ENDED = frozenset(state for state, onward in TRANSITIONS.items() if not onward)

# The facts that must be given, now or earlier, when a round enters a state.
REQUIRED_FACTS: Mapping[RoundState, tuple[str, ...]] = MappingProxyType(
    {
        RoundState.SEALED: ("sealed_sessions", "list_digest"),
        RoundState.SHARED: ("share_digest",),
        RoundState.ABORTED: ("reason",),
        RoundState.DISCARDED: ("reason",),
    }
)


def allowed(from_: RoundState, to: RoundState) -> bool:
    """Return whether a round may move directly from one state to another."""
    return to in TRANSITIONS[from_]


class TaskState(StrEnum):
    """What an operator of this server has decided about a task."""

    RUNNING = "running"
    STOPPED = "stopped"  # it can be started again
    ARCHIVED = "archived"  # its model and bodies are removed; it cannot be started again


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskRecord:
    """One training job."""

    task_id: bytes  # (32,)
    spec: bytes = field(repr=False)
    added_at: float
    state: TaskState | None = None  # None: no operator has decided; it runs if the settings name it


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelVersion:
    """One version of a task's model; the arrays are in a file, and this holds their digest."""

    task_id: bytes  # (32,)
    version: int
    digest: bytes  # (32,)
    recorded_at: float
    published_at: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Rollback:
    """The operator's request to go back to the numbers of an older version, and its outcome."""

    task_id: bytes  # (32,)
    seen: int  # the version that was published at the time of the request
    source: int  # the version whose numbers are requested
    wished_at: float
    ended_at: float | None = None
    made: int | None = None  # the version that these numbers have now
    reason: str | None = None  # why it was not possible

    @property
    def ended(self) -> bool:
        """Return whether it was carried out or abandoned."""
        return self.ended_at is not None


@dataclass(frozen=True, slots=True, kw_only=True)
class NewRound:
    """The properties of a round that are fixed before its first session."""

    round_id: bytes  # (32,), the digest of its specification
    task_id: bytes  # (32,)
    number: int
    kind: str  # train, survey, evaluate
    model_version: int
    spec: bytes = field(repr=False)
    opened_at: float
    join_until: float  # equal to opened_at while no session has joined: there is no deadline yet
    upload_until: float


@dataclass(frozen=True, slots=True, kw_only=True)
class RoundRecord(NewRound):
    """A round and its progress; facts of later states are None."""

    state: RoundState
    sealing_at: float | None
    sealed_at: float | None
    shared_at: float | None
    reconstructed_at: float | None
    ended_at: float | None  # published, aborted or discarded
    sealed_sessions: tuple[bytes, ...] | None = field(repr=False)  # sorted, 16 bytes each
    list_digest: bytes | None
    share_digest: bytes | None
    next_version: int | None
    reason: str | None  # why it was aborted or discarded

    @property
    def started(self) -> bool:
        """Return whether a session has joined, so that there are deadlines."""
        return self.upload_until > self.opened_at

    @property
    def ended(self) -> bool:
        """Return whether nothing more will happen in this round."""
        return self.state in ENDED

    def entered_at(self, state: RoundState) -> float:
        """Return when the round entered its current state or an earlier one."""
        times = {
            RoundState.SEALING: self.sealing_at,
            RoundState.SEALED: self.sealed_at,
            RoundState.SHARED: self.shared_at,
            RoundState.RECONSTRUCTED: self.reconstructed_at,
        }
        return times.get(state) or self.opened_at


@dataclass(frozen=True, slots=True)
class Window:
    """The deadlines of a round: for joining and for uploading."""

    join_until: float
    upload_until: float


class Admission(StrEnum):
    """The outcome of a device's request to join."""

    ADMITTED = "admitted"
    ALREADY = "already"  # the same device repeated the request with the same session
    DEVICE_TAKEN = "device-taken"  # the device has another session in this round
    SESSION_TAKEN = "session-taken"  # the session id belongs to another device or another round
    FULL = "full"
    CLOSED = "closed"  # the round accepts nothing new


class Stored(StrEnum):
    """The outcome of an upload."""

    STORED = "stored"  # and durable
    SAME = "same"  # these bytes are already stored
    DIFFERENT = "different"  # other bytes are already stored
    CLOSED = "closed"  # the round accepts nothing new
    UNKNOWN = "unknown"  # the session was not admitted
    FULL = "full"
    NO_KEYS = "no-keys"  # the update arrived before the keys
    OTHER_ROUND = "other-round"  # the session id was used in another round


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Upload:
    """One message of a session; to the ledger its body is opaque."""

    round_id: bytes  # (32,)
    session_id: bytes  # (16,)
    body_digest: bytes  # (32,), of everything: distinguishes a resend from other bytes
    public_digest: bytes  # (32,), of the part that must be the same on both servers
    body: bytes


@dataclass(frozen=True, slots=True)
class SessionSummary:
    """The data about a session that a server sends its peer when a round is sealed."""

    session_id: bytes
    keys_public_digest: bytes | None
    update_public_digest: bytes | None

    @property
    def complete(self) -> bool:
        """Return whether both keys and update have arrived."""
        return self.keys_public_digest is not None and self.update_public_digest is not None


@dataclass(frozen=True, slots=True)
class Counts:
    """How many sessions of a round reached each phase."""

    admitted: int
    keys: int
    updates: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Suspect:
    """A device that was in several discarded rounds."""

    device: bytes = field(repr=False)  # (32,), the hash of its first token
    name: str | None  # its name, given by the operator or the app's backend
    discarded: int  # rounds in which it took part
    published: int


@dataclass(frozen=True, slots=True)
class TakenSeats:
    """The seats of a round: sessions with keys have taken one, and sessions that have just joined are expected to."""

    taken: int
    expected: int
    oldest: float | None  # when the first of the expected sessions joined


@dataclass(frozen=True, slots=True)
class Turnout:
    """How many sessions of some rounds sent keys, and how many of these finished, even if too late."""

    keys: int
    ended: int


@dataclass(frozen=True, slots=True)
class NewToken:
    """A new token for a device, stored only as its SHA-256."""

    name: str  # of the device, as the operator or the app's backend calls it
    token_hash: bytes = field(repr=False)  # (32,)
    expires_at: float | None = None


class Added(StrEnum):
    """The outcome for a new token."""

    ADDED = "created"
    SAME = "unchanged"  # the device already has this token
    NAME_TAKEN = "exists"  # the device has another token
    TOKEN_TAKEN = "taken"  # another device has this token  # noqa: S105


class TokenState(StrEnum):
    """Whether a token is valid."""

    ACTIVE = "active"
    EXPIRED = "expired"
    REVOKED = "revoked"
    SUSPENDED = "suspended"


@dataclass(frozen=True, slots=True)
class Conduct:
    """The outcomes of a device's sessions, joined with any of its tokens."""

    joined: int
    completed: int  # part of a sum
    refused: int  # messages that did not fit their round, refused by this server or by the other
    rejected: int  # sessions that failed a check between the servers
    silent: int  # sessions since the last one that finished
    joined_at: float | None
    problem: str | None  # the slug of the last refusal or rejection
    problem_at: float | None
    suspended_at: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Token:
    """An enrolment token, stored only as its SHA-256."""

    token_hash: bytes = field(repr=False)  # (32,)
    device: bytes = field(repr=False)  # (32,), the hash of the device's first token
    name: str  # of the device
    generation: int  # counts the tokens of a device
    created_at: float
    expires_at: float | None
    revoked_at: float | None
    conduct: Conduct

    def state(self, now: float) -> TokenState:
        """Return whether the token is valid now."""
        if self.revoked_at is not None:
            return TokenState.REVOKED
        if self.conduct.suspended_at is not None:
            return TokenState.SUSPENDED
        return TokenState.ACTIVE if self.expires_at is None or now < self.expires_at else TokenState.EXPIRED


class What(StrEnum):
    """The kinds of instructions that an operator can give."""

    PAUSE = "pause"  # begin no new round
    DRAIN = "drain"  # and accept no new session, so that the server can be stopped
    CLOSE = "close"  # seal the open round now
    ABORT = "abort"  # end the open round without a sum


@dataclass(frozen=True, slots=True, kw_only=True)
class Instruction:
    """An operator's instruction to a server."""

    task_id: bytes  # (32,)
    what: What
    round_id: bytes | None  # (32,), if it is about one round
    by: str  # the name of an operator token
    reason: str
    at: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Action:
    """An operator's action."""

    action_id: int
    at: float
    by: str  # the name of an operator token, or the user of a command on the server's own machine
    what: str
    reason: str | None
    data: Mapping[str, Any]
    task_id: bytes | None = None  # None: about the server


@dataclass(frozen=True, slots=True)
class Event:
    """An event that operators may want to know about."""

    event_id: int
    at: float
    kind: str
    data: Mapping[str, Any]
