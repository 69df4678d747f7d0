"""Limits per device: seats in a round, waiting times after silent sessions, and a rate of reads."""

import math
from collections import OrderedDict
from dataclasses import dataclass
from typing import Any

from secemb_party.errors import BusyError
from secemb_party.ledger import Conduct, Ledger, Turnout
from secemb_party.parts import Clock

_WAITING, _MORE_WAITING = 2, 200  # limit on sessions without keys per round: a multiple of the seats, plus a constant
READS_PER_MINUTE = 60  # private reads of a device, unless the operator sets another rate
REMEMBERED = 5  # rounds over which the dropout is measured
_MOST_SEATS = 2  # limit on seats, as a multiple of the cohort, however many drop out
_PARDONED = 1  # consecutive sessions that a device may lose without waiting, because phones go offline
_FIRST_WAIT, _LONGEST_WAIT = 60.0, 86_400.0  # seconds; twice as long with each further session
_DEVICES = 100_000  # number of devices whose reads are remembered
_SURELY = 0.01  # tolerance in seconds, so that a seat has certainly lapsed by either clock


@dataclass(frozen=True, slots=True, kw_only=True)
class SeatRules:
    """The operator's settings for the seats of a round."""

    seconds: float = 5.0  # how long a round waits for the keys of a session that has joined
    share: float = 0.9  # fraction of the sessions in a round that suffices to seal it once no more can join
    grace: float = 10.0  # seconds that the others have after that
    stragglers: float = 2.0  # limit for the other half, as a multiple of the time that the first half took


class Seats:
    """The seats of rounds: their number, and how long a round waits for a session's keys to take one.

    Some sessions send keys but never upload. Going by the last rounds, a round has as many more seats than its cohort
    as are needed to fill it, and accepts no more updates than its cohort.
    """

    def __init__(self, rules: SeatRules, cohort: int) -> None:
        self.rules, self._cohort, self.limit = rules, cohort, cohort

    def learn(self, found: Turnout) -> None:
        """Record how many of the sessions that sent keys in the last rounds finished."""
        ended = max(found.ended / found.keys, 1 / _MOST_SEATS) if found.keys else 1.0
        self.limit = math.ceil(self._cohort / ended)

    @property
    def waiting(self) -> int:
        """Return the limit on sessions without keys: they do not block others, but must not fill the disk."""
        return _WAITING * self.limit + _MORE_WAITING

    async def facts(self, ledger: Ledger, round_id: bytes, now: float, steady: float) -> dict[str, Any]:
        """Return the facts for the conductor, at this time by the ledger's clock and by the steady one."""
        found = await ledger.seats(round_id, self.since(now))
        lapses_in = None if found.oldest is None else found.oldest + self.rules.seconds - now + _SURELY
        return {
            "seats": self.limit,
            "taken": found.taken,
            "admitted": max(found.taken, min(found.taken + found.expected, self.limit)),
            "lapses_at": None if lapses_in is None else steady + lapses_in,
            "share": self.rules.share,
            "grace": self.rules.grace,
            "stragglers": self.rules.stragglers,
        }

    def since(self, now: float) -> float:
        """Return the join time before which sessions have lapsed: no round waits for their keys any longer."""
        return now - self.rules.seconds


def back_off(conduct: Conduct, now: float) -> float:
    """Return how many seconds a device must wait after consecutive sessions that it did not finish."""
    beyond = conduct.silent - _PARDONED
    if beyond <= 0 or conduct.joined_at is None:
        return 0.0
    wait = min(_FIRST_WAIT * 2.0 ** min(beyond - 1, 20), _LONGEST_WAIT)
    return max(0.0, min(conduct.joined_at + wait - now, _LONGEST_WAIT))


class ReadRate:
    """A limit on how often each device may read rows: a burst of this size, refilled every minute."""

    def __init__(self, per_minute: int, clock: Clock) -> None:
        self._most, self._clock = per_minute, clock
        self._left: OrderedDict[bytes, tuple[float, float]] = OrderedDict()  # remaining reads, and when computed

    def take(self, device: bytes) -> None:
        """Count a read; raise `BusyError` if the device must wait."""
        now, a_second = self._clock(), self._most / 60
        left, then = self._left.get(device, (float(self._most), now))
        left = min(float(self._most), left + (now - then) * a_second)
        self._left[device] = max(left - 1, 0.0) if left >= 1 else left, now
        self._left.move_to_end(device)
        if len(self._left) > _DEVICES:
            self._left.popitem(last=False)
        if left < 1:
            raise BusyError(math.ceil((1 - left) / a_second))
