"""Comparison of the two servers' clocks at every call between them.

Each call contains the caller's time and each answer the callee's, in the header `secemb-time`. Tickets and deadlines
are times: if one clock is wrong, that server refuses devices, which looks like a fault of the devices.
"""

import re
from collections.abc import Mapping

from secemb_party.logs import get_logger
from secemb_party.metrics import Metrics
from secemb_party.parts import Clock
from secemb_party.tickets import CLOCK_TOLERANCE

TIME_HEADER = "secemb-time"
WARN_SECONDS = 30.0
FORGET_SECONDS = 600.0  # after this long without a call, the difference is unknown
_TIME = re.compile(r"[0-9]{1,12}(\.[0-9]{1,6})?")


def written(now: float) -> str:
    """Return a time in the format of the header."""
    return f"{now:.3f}"


class PeerClock:
    """The difference of the other server's clock from this one's."""

    def __init__(self, clock: Clock, steady: Clock, metrics: Metrics) -> None:
        self._clock, self._steady, self._metrics = clock, steady, metrics
        self._skew, self._compared = 0.0, float("-inf")
        self._warned = False

    def header(self) -> dict[str, str]:
        """Return the header that tells the other server this one's time."""
        return {TIME_HEADER: written(self._clock())}

    def compare(self, headers: Mapping[str, str], *, took: float = 0.0) -> None:
        """Compare the time in a message that was made within the last `took` seconds; one without a time is ignored."""
        text = headers.get(TIME_HEADER, "")
        if not _TIME.fullmatch(text):
            return
        # The other clock was read at some time during the call, so only a difference beyond the call's duration is
        # skew.
        ahead = float(text) - self._clock()
        self._skew = ahead if ahead > 0 else min(0.0, ahead + took)
        self._compared = self._steady()
        self._metrics.clock_skew(self._skew)
        self._tell()

    def skew(self) -> float:
        """Return the seconds by which the other server's clock is ahead; 0 without a recent call."""
        return self._skew if self.compared() else 0.0

    def compared(self) -> bool:
        """Return whether the two clocks were compared recently."""
        return self._steady() - self._compared < FORGET_SECONDS

    def times(self) -> list[float]:
        """Return the time, or both clocks' times if they differ by more than tickets tolerate."""
        now, skew = self._clock(), self.skew()
        return [now] if abs(skew) <= CLOCK_TOLERANCE else [now, now + skew]

    def fault(self) -> str | None:
        """Return what is wrong and what to do, or None if tickets work on both servers."""
        skew = self.skew()
        if abs(skew) <= CLOCK_TOLERANCE:
            return None
        return (
            f"the other server's clock is {abs(skew):,.0f} seconds {('ahead' if skew > 0 else 'behind')}, but"
            f" tickets tolerate only {CLOCK_TOLERANCE:.0f}; check NTP on both machines"
        )

    def _tell(self) -> None:
        wrong = abs(self._skew) > WARN_SECONDS
        if wrong != self._warned:
            self._warned = wrong
            words = "the two servers' clocks differ" if wrong else "the two servers' clocks agree again"
            get_logger().warning(words, ahead=round(self._skew, 1))
