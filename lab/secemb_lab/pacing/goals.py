"""The goals for simulated fleets."""

from collections.abc import Iterator, Sequence

from secemb_lab.pacing.scenarios import Figures
from secemb_lab.report.report_file import Goal
from secemb_server0.pace import JOINS_PER_SECOND

UNDISTURBED, DISTURBED = 0.95, 0.9  # rounds that must be published
_LOTTERY = 1.15  # the dispersion of a lottery is 1; slightly more can be chance
_AWAY_RATE = 1.02 * JOINS_PER_SECOND  # on average, because jitter moves some into the hour
_COMEBACK_SECONDS = 1000.0  # a device waits at most 900 for an unavailable server


def goals(found: Sequence[Figures]) -> list[Goal]:
    """Return every goal with its measurement."""
    return [goal for one in found for goal in _goals(one)]


def _goals(one: Figures) -> Iterator[Goal]:
    scenario, name = one.scenario, title(one)
    least = DISTURBED if scenario.drop_out or scenario.away[1] else UNDISTURBED
    yield Goal.at_least(f"{name}: share of rounds published", one.share, least)
    yield Goal.at_most(f"{name}: finished sessions that did not count", one.in_vain, 0.05)
    yield Goal.at_most(f"{name}: joins a second after Retry-After, p99", one.told_p99, 2 * JOINS_PER_SECOND)
    yield Goal.at_most(f"{name}: joins a second after Retry-After, peak", one.told_peak, 3 * JOINS_PER_SECOND)
    yield Goal.at_most(f"{name}: unevenness between devices (1: random selection)", one.dispersion, _LOTTERY)
    if one.comeback_seconds is not None:
        yield Goal.at_most(f"{name}: seconds to the next version", one.comeback_seconds, _COMEBACK_SECONDS)
    if one.told_away is not None:  # first calls come at the target rate too, regardless of the server
        yield Goal.at_most(f"{name}: joins a second after Retry-After while it is away", one.told_away, _AWAY_RATE)


def title(one: Figures) -> str:
    """Return the name of a run."""
    scenario = one.scenario
    deadline = f", deadline {scenario.upload_seconds} s" if scenario.drop_out else ""
    return f"{scenario.devices:,} devices, {scenario.name}{deadline}"
