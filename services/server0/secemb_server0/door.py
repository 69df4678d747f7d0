"""Admission to the announced round; kept in memory because most devices are turned away."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

from secemb_party.ledger import RoundRecord
from secemb_party.parts import Clock
from secemb_server0.conductor import Facts, joinable
from secemb_shared.messages import TaskSpec


@dataclass(frozen=True, slots=True)
class Deadlines:
    """The deadlines for joining a round and for uploading, in steady time."""

    join_until: float
    upload_until: float


class RoundTimer:
    """Keeps the deadlines of one round at a time.

    The ledger has them in wall-clock time, and that clock may be set while a round is open. They are read once, when a
    session has begun them or after a restart; after that, steady time counts. No phase is longer than the task allows,
    so a round that was opened with a wrong clock is not stuck once the clock is corrected.
    """

    def __init__(self, task: TaskSpec, *, clock: Clock, steady: Clock) -> None:
        self._task, self._clock, self._steady = task, clock, steady
        self._read: tuple[bytes, float] | None = None  # the round and its deadline in the ledger
        self._deadlines = Deadlines(0.0, 0.0)

    def of(self, record: RoundRecord) -> Deadlines:
        """Return the deadlines of a round."""
        read = record.round_id, record.upload_until
        if read != self._read:
            wall, now = self._clock(), self._steady()
            join = min(record.join_until - wall, self._task.join_seconds)
            upload = min(record.upload_until - wall, self._task.upload_seconds)
            self._read, self._deadlines = read, Deadlines(now + join, now + upload)
        return self._deadlines


class TurnoutTimer:
    """Remembers when this many sessions of a round were first here; a seat that is taken or lost may change this."""

    def __init__(self, here: Callable[[Facts, float], bool]) -> None:
        self._here = here
        self._seen: tuple[bytes, float] | None = None  # the round and the time

    def since(self, record: RoundRecord | None, facts: Facts, now: float) -> float | None:
        """Return when they were first here; None if they are not."""
        if record is None or not self._here(facts, now):
            self._seen = None
        elif self._seen is None or self._seen[0] != record.round_id:
            self._seen = record.round_id, now
        return self._seen[1] if self._seen is not None else None


class Door:
    """The round that devices may join and the sessions in it, as last read by the leader."""

    def __init__(self) -> None:
        self.record: RoundRecord | None = None  # the round that server 1 knows to be open
        self._facts: Facts | None = None
        self._sessions: set[bytes] = set()

    def open(self, record: RoundRecord, facts: Facts, sessions: Iterable[bytes]) -> None:
        """Let devices join a round that already has these sessions."""
        if self.record is None or self.record.round_id != record.round_id:
            self._sessions = set()
        self._sessions.update(sessions)
        # Sessions that joined during the leader's read are missing in its facts. The ledger has them, and decides.
        self.record, self._facts = record, facts

    def close(self) -> None:
        """Let no device join."""
        self.record = self._facts = None

    def drain(self) -> None:
        """Admit no new sessions; those that have joined may repeat their request."""
        if self._facts is not None:
            self._facts = replace(self._facts, draining=True)

    def holds(self, round_id: bytes) -> bool:
        """Return whether this is the round that devices may join."""
        return self.record is not None and self.record.round_id == round_id

    @property
    def for_panel(self) -> bool:
        """Return whether only the trusted panel may join the round."""
        return self._facts is not None and self._facts.panel

    def is_full(self) -> bool:
        """Return whether every seat is taken."""
        return self._facts is not None and self._facts.taken >= self._seats

    @property
    def _seats(self) -> int:
        return 0 if self._facts is None else self._facts.seats or self._facts.cohort

    def has(self, session_id: bytes) -> bool:
        """Return whether a session has joined the round before."""
        return session_id in self._sessions

    def lets_in(self, session_id: bytes, now: float) -> bool:
        """Return whether a session may join now, or repeat its request because it has joined before."""
        return self._facts is not None and (joinable(self._facts, now) or self.has(session_id))

    def admit(self, session_id: bytes, record: RoundRecord, deadlines: Deadlines) -> None:
        """Record a session that the ledger has admitted, and the round's deadlines after that."""
        if self._facts is None or not self.holds(record.round_id):
            return  # the round was closed in the meantime
        new = session_id not in self._sessions
        self._sessions.add(session_id)
        self.record = record
        self._facts = replace(
            self._facts,
            started=record.started,
            join_until=deadlines.join_until,
            upload_until=deadlines.upload_until,
            admitted=max(self._facts.admitted, min(self._facts.admitted + new, self._seats)),
        )

    def take(self) -> None:
        """Record that a session has taken a seat."""
        if self._facts is not None:
            self._facts = replace(self._facts, taken=self._facts.taken + 1)

    def complete(self) -> None:
        """Record that a session became complete; if it is counted twice, the leader's next read corrects this."""
        if self._facts is not None:
            self._facts = replace(self._facts, complete=self._facts.complete + 1)
