"""Limits per device: seats in a round, waits after silent sessions, and a rate of reads."""

import math
from collections import OrderedDict
from dataclasses import dataclass
from typing import Any

from secemb_party.errors import BusyError
from secemb_party.ledger import Conduct, Ledger, Turnout
from secemb_party.parts import Clock

_WAITING, _MORE_WAITING = 2, 200  # sessions without keys that a round remembers: times the seats, and some more
READS_PER_MINUTE = 60  # private reads of a device, unless the operator sets another rate
REMEMBERED = 5  # rounds from which the dropout is measured
_MOST_SEATS = 2  # times the cohort, however many drop out
_PARDONED = 1  # sessions in a row that a device may lose without waiting: phones go out
_FIRST_WAIT, _LONGEST_WAIT = 60.0, 86_400.0  # seconds; twice as long with each further session
_DEVICES = 100_000  # whose reads are remembered
_SURELY = 0.01  # seconds after which a seat has lapsed, whatever two clocks make of its last moment


@dataclass(frozen=True, slots=True, kw_only=True)
class SeatRules:
    """The operator's settings for the seats of a round."""

    seconds: float = 5.0  # that a round waits for the keys of a session that has joined
    share: float = 0.9  # of the sessions in a round that suffice to seal it, once no more can join
    grace: float = 10.0  # seconds that the others have from then on
    stragglers: float = 2.0  # times as long as half of them took, that the other half has at most


class Seats:
    """The seats of rounds: how many there are, and how long a round waits for a session to take one with its keys.

    Of those who send keys some never upload. A round has so many more seats than its cohort as, going by the last
    rounds, are needed to fill it, and takes no more updates than its cohort.
    """

    def __init__(self, rules: SeatRules, cohort: int) -> None:
        self.rules, self._cohort, self.limit = rules, cohort, cohort

    def learn(self, found: Turnout) -> None:
        """Take in how many of those who sent keys in the last rounds came to an end."""
        ended = max(found.ended / found.keys, 1 / _MOST_SEATS) if found.keys else 1.0
        self.limit = math.ceil(self._cohort / ended)

    @property
    def waiting(self) -> int:
        """Return how many sessions without keys a round remembers: they keep nobody out, and must not fill the disk."""
        return _WAITING * self.limit + _MORE_WAITING

    async def facts(self, ledger: Ledger, round_id: bytes, now: float, steady: float) -> dict[str, Any]:
        """Return what the conductor goes by, at this moment of the ledger's clock and of the steady one."""
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
        """Return the time until which sessions joined whose keys no round waits for any longer."""
        return now - self.rules.seconds


def back_off(conduct: Conduct, now: float) -> float:
    """Return for how many seconds a device may not join, after consecutive sessions that it did not finish."""
    beyond = conduct.silent - _PARDONED
    if beyond <= 0 or conduct.joined_at is None:
        return 0.0
    wait = min(_FIRST_WAIT * 2.0 ** min(beyond - 1, 20), _LONGEST_WAIT)
    return max(0.0, min(conduct.joined_at + wait - now, _LONGEST_WAIT))


class ReadRate:
    """A limit on how often each device may read rows: a burst of this size, refilled every minute."""

    def __init__(self, per_minute: int, clock: Clock) -> None:
        self._most, self._clock = per_minute, clock
        self._left: OrderedDict[bytes, tuple[float, float]] = OrderedDict()  # reads that are left, and as of when

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
