"""The devices of a simulated fleet: when they are awake, how long their sessions take, and which they never finish."""

from dataclasses import dataclass

import numpy as np

DAY = 86_400.0
_NIGHT = 8 * 3600.0  # that a device is on a charger
_BEDTIMES = 2 * 3600.0  # within which all devices are plugged in
_SESSION_SECONDS, _SPREAD = 10.0, 0.6  # from joining to the upload: median, and standard deviation of the logarithm
_GONE_SECONDS = (60.0, 600.0)  # of a device that dropped out


@dataclass(frozen=True, kw_only=True)
class Habits:
    """How the devices of a fleet behave."""

    arrival_seconds: float  # period within which all of them call for the first time
    drop_out: float = 0.0  # probability that a device never finishes a session
    nights: bool = False  # awake for only eight hours of the day


@dataclass
class Population:
    """Devices by number. All their randomness comes from one seed."""

    devices: int
    habits: Habits
    seed: int = 1

    def __post_init__(self) -> None:
        self._random = np.random.default_rng(self.seed)
        self._wakes = self._random.uniform(0.0, _BEDTIMES, self.devices if self.habits.nights else 0)

    def first_calls(self) -> "np.ndarray[tuple[int], np.dtype[np.float64]]":
        """Return when each device calls for the first time."""
        return (
            self._wakes.copy()
            if self.habits.nights
            else self._random.uniform(0, self.habits.arrival_seconds, self.devices)
        )

    def awake_at(self, device: int, time: float) -> float:
        """Return when a device that wants to call at this time can: then, or when it next wakes."""
        if not self.habits.nights:
            return time
        since = (time - self._wakes[device]) % DAY
        return time if since < _NIGHT else float(time + DAY - since)

    def drops_out(self) -> bool:
        """Draw whether a device will never finish its session."""
        return bool(self._random.random() < self.habits.drop_out)

    def session_seconds(self) -> float:
        """Draw how long a device takes from joining to its upload."""
        return float(_SESSION_SECONDS * np.exp(_SPREAD * self._random.standard_normal()))

    def gone_seconds(self) -> float:
        """Draw how long a device that dropped out stays away."""
        return float(self._random.uniform(*_GONE_SECONDS))

    def some_of(self, seconds: float) -> float:
        """Draw at least half of a pause, as the server's own loop does."""
        return float(seconds * self._random.uniform(0.5, 1.0))
