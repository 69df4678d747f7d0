"""Retry times for devices that cannot join now: when a round can admit them, and spread out."""

import math
import random
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from statistics import median
from typing import Literal

from secemb_party.errors import PeerUnavailableError
from secemb_party.ledger import RoundRecord
from secemb_party.parts import Clock
from secemb_shared.messages import TaskSpec

JOINS_PER_SECOND = 20.0  # desired rate, unless the operator sets another
REMEMBERED = 5  # recent rounds from which the next one is predicted
_SHORTEST, _LONGEST = 1.0, 86_400.0  # seconds that a device is asked to wait
_AWAY_SECONDS = (5.0, 900.0)  # the shortest and the longest wait while no round can open
_PAUSED_SECONDS = (60.0, 900.0)  # the same while an operator has paused the task
_LEAST_RATE = 0.1  # smallest fraction of the desired rate, however busy the server is
Observer = Literal["round", "call"]  # who notices that no round can open: a step of a round, or the regular call
_DRAWS = 3  # pages drawn at random before the first with room is used


class Forecast:
    """The predicted opening of the next round, from the durations of the last ones."""

    def __init__(self, task: TaskSpec) -> None:
        self._task = task
        self._lengths: list[float] = []  # from the first session to the end
        self._ends: list[float] = []  # from the last upload to the end
        self._away: dict[Observer, float] = {}  # since when
        self._paused_since: float | None = None

    def learn(self, rounds: Sequence[RoundRecord]) -> None:
        """Record the rounds that ended last."""
        ended = [(one, one.ended_at) for one in rounds if one.started and one.ended_at is not None][:REMEMBERED]
        self._lengths = [end - self._started_at(one) for one, end in ended]
        self._ends = [end - one.sealing_at for one, end in ended if one.sealing_at is not None]

    def away(self, now: float, by: Observer = "round") -> None:
        """Record that no round can open: server 1 or the ledger is unavailable."""
        self._away.setdefault(by, now)

    def back(self, by: Observer = "round") -> None:
        """Record that this observer knows of nothing that prevents rounds from opening."""
        self._away.pop(by, None)

    @contextmanager
    def calling(self, clock: Clock) -> Iterator[None]:
        """Record whether server 1 answers the regular call: a step of a round waits longer for a hung server."""
        try:
            yield
        except PeerUnavailableError:
            self.away(clock(), "call")
            raise
        self.back("call")

    def hold(self, since: float | None) -> None:
        """Record that an operator prevents rounds from opening; None: rounds open again."""
        self._paused_since = since if self._paused_since is None or since is None else self._paused_since

    def opening(self, record: RoundRecord | None, now: float) -> float:
        """Return when the round after this one, which devices can join, should open; None: none can be joined."""
        away_since = min(self._away.values(), default=None)
        for since, (shortest, longest) in ((away_since, _AWAY_SECONDS), (self._paused_since, _PAUSED_SECONDS)):
            if since is not None:  # as long again as it has lasted, so that devices ask less and less often
                return now + min(max(shortest, now - since), longest)
        if record is None or not record.started:
            return now + max(_SHORTEST, median(self._ends or [0.0]))
        length = median(self._lengths) if self._lengths else self._task.join_seconds
        expected = self._started_at(record) + length
        late = max(_SHORTEST, now - expected)  # as long again as it is late
        return expected if expected > now else max(min(now + late, record.upload_until), now + _SHORTEST)

    def _started_at(self, record: RoundRecord) -> float:
        return record.join_until - self._task.join_seconds


class Pace:
    """A calendar of retry times, spread at a fixed rate from the expected opening on.

    They are not assigned in order. If one pass over the fleet took as long as a round, the same devices would arrive at
    each opening, and the others would always find the round full.
    """

    def __init__(self, joins_per_second: float = JOINS_PER_SECOND, draw: Callable[[], float] = random.random) -> None:
        self._rate, self._draw = joins_per_second, draw
        self._width = max(1.0, 1 / joins_per_second)  # seconds per page of the calendar
        self._calendar: dict[int, int] = {}  # appointments on each page that is not past
        self._page = 0  # the first page that is not past
        self._given = 0  # appointments in the calendar: about as many as there are devices
        self._free = 0  # where to look for room if random draws find none

    def seconds(self, opening: float, now: float, *, load: float = 0.0) -> int:
        """Return how long a device should wait; `load` is the fraction of the server that is busy."""
        self._turn_to(int(now // self._width))
        room = max(1, int(self._rate * self._width * max(_LEAST_RATE, 1 - load)))
        page = self._find(math.ceil(max(opening, now + _SHORTEST) / self._width), room)
        self._calendar[page] = self._calendar.get(page, 0) + 1
        self._given += 1
        wait = (page + self._draw()) * self._width - now
        return math.ceil(min(max(_SHORTEST, wait), _LONGEST))

    def _find(self, first: int, room: int) -> int:
        """Return a page with room: one drawn from as many as the whole fleet needs, or else the first."""
        for _ in range(_DRAWS):
            page = first + int(self._draw() * (1 + self._given / room))
            if self._calendar.get(page, 0) < room:
                return page
        self._free = max(self._free, first)
        while self._calendar.get(self._free, 0) >= room:
            self._free += 1
        return self._free

    def _turn_to(self, page: int) -> None:
        """Remove the pages before this one."""
        for past in range(self._page, page) if self._given else ():
            self._given -= self._calendar.pop(past, 0)
        self._page = page
