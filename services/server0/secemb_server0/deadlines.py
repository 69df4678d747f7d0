"""When the phases of the current round end, by a clock that nobody can set."""

from dataclasses import dataclass

from secemb_party.ledger import RoundRecord
from secemb_party.parts import Clock
from secemb_shared.messages import TaskSpec


@dataclass(frozen=True, slots=True)
class Deadlines:
    """Until when sessions may join a round and upload in it, in steady time."""

    join_until: float
    upload_until: float


class RoundTimer:
    """Keeps the deadlines of one round at a time.

    The ledger has them by the wall clock, which may be set while a round is open. They are read once, when a session
    has begun them or after a restart; from then on steady time counts. No phase is longer than the task says, so that a
    round that was opened by a wrong clock is not stuck once the clock is right.
    """

    def __init__(self, task: TaskSpec, *, clock: Clock, steady: Clock) -> None:
        self._task, self._clock, self._steady = task, clock, steady
        self._read: tuple[bytes, float] | None = None  # the round and its deadline by the ledger
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
