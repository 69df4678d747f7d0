"""Differential privacy in a simulation: the noise that a budget needs, and the fields of its task."""

from dataclasses import dataclass
from functools import cache
from math import sqrt
from pathlib import Path
from typing import Any

from secemb_party.accountant import Terms, solve_multiplier
from secemb_shared.messages.privacy import LARGEST_EPSILON, RECORD, USER, BudgetLine, Privacy
from secemb_shared.ring import Ring
from secemb_tools.errors import ScenarioError
from secemb_tools.operate.privacy import read_file
from secemb_tools.simulation.recipes import Recipe, number
from secemb_tools.simulation.world import Sampled
from secemb_tools.specification import as_decimal

FRACTION_BITS = 12  # leaves room for the noise of a small budget; rounding is negligible beside the noise
CLIPS = {USER: 3.0, RECORD: 1.0}  # of a user's whole update, of one rating's gradient
DELTA = 1e-4
_QUIET = 0.034  # standard deviation of the noise on each number of a mean update for which default rates are tuned


@dataclass(frozen=True, slots=True, kw_only=True)
class NoiseOptions:
    """A budget for all training rounds of a run, against each single server."""

    epsilon: float | None  # None: clipped and sampled as with noise, but without it, for comparison
    delta: float = DELTA
    unit: str = USER
    clip: float | None = None  # None: the unit's default

    def __post_init__(self) -> None:
        if self.unit not in CLIPS:
            raise ScenarioError(f"the unit of privacy must be {' or '.join(CLIPS)}")
        for name, value in (("epsilon", self.epsilon), ("delta", self.delta), ("clip", self.clip)):
            if value is not None:
                number(name, value)
        if self.epsilon is not None and not 0 < self.epsilon <= LARGEST_EPSILON:
            raise ScenarioError(f"epsilon must be above 0 and at most {LARGEST_EPSILON:,}")
        if not 0 < self.delta < 1:
            raise ScenarioError("delta must be between 0 and 1, and should be well below 1 / number of users")


def noise_wanted(
    *,
    privacy: Path | str | None = None,
    epsilon: float | None = None,
    delta: float | None = None,
    unit: str | None = None,
    clip: float | None = None,
) -> NoiseOptions | None:
    """Return the budget in a privacy file, or the one given by numbers; None if there is neither."""
    numbers = {"delta": delta, "unit": unit, "clip": clip}
    given: dict[str, Any] = {name: value for name, value in numbers.items() if value is not None}
    if privacy is None:
        if epsilon is None and given:
            raise ScenarioError(f"{min(given)} is part of a privacy budget; give epsilon too, or a privacy file")
        return None if epsilon is None else NoiseOptions(epsilon=epsilon, **given)
    if epsilon is not None or given:
        raise ScenarioError("a privacy file has epsilon, delta, unit and clip; give the file or these, not both")
    file = read_file(Path(privacy))
    if fixed := [name for name in ("multiplier", "rounds", "dense_clip") if getattr(file.train, name) is not None]:
        raise ScenarioError(f"{privacy}: a simulation computes the noise for its own rounds; omit train.{fixed[0]}")
    return NoiseOptions(epsilon=file.train.epsilon, delta=file.delta, unit=file.unit, clip=file.train.clip)


@cache  # finding the multiplier takes seconds
def terms_of(options: NoiseOptions, schedule: Sampled, rounds: int) -> Terms | None:
    """Return the privacy terms of each round; None without noise."""
    if options.epsilon is None:
        return None
    multiplier = solve_multiplier(
        budget=options.epsilon, delta=options.delta, rounds=rounds, sampling_rate=schedule.rate
    )
    return Terms(multiplier=float(multiplier), delta=options.delta, sampling_rate=schedule.rate)


def calmed(recipe: Recipe, options: NoiseOptions, *, multiplier: float, sources: int = 2) -> Recipe:
    """Return the recipe with the rate that this much noise allows, from this many sources in each round's sum.

    Momentum accumulates noise as it accumulates gradients. A rate inversely proportional to the variance keeps the
    accumulated noise constant; Adam divides by the noise itself.
    """
    if recipe.optimiser != "momentum":
        return recipe
    noise = (options.clip or CLIPS[options.unit]) * multiplier * sqrt(sources) / recipe.cohort
    return recipe.changed(bias_rate=recipe.bias_rate * min(1.0, (_QUIET / noise) ** 2))


def noisy_fields(
    recipe: Recipe, schedule: Sampled, options: NoiseOptions, *, multiplier: float | None = None
) -> dict[str, Any]:
    """Return a task's clip, its noise, and room for both in the ring; the noise of the budget unless it is given."""
    terms = terms_of(options, schedule, recipe.rounds) if multiplier is None else None
    clip = int((options.clip or CLIPS[options.unit]) * 2**FRACTION_BITS)
    privacy = Privacy(
        unit=options.unit,
        delta=as_decimal(options.delta),
        train=BudgetLine(
            clip=clip,
            multiplier=as_decimal(multiplier or (terms.multiplier if terms is not None else 1.0)),
            epsilon=as_decimal(options.epsilon or LARGEST_EPSILON),
        ),
    )
    cohort = schedule.largest_cohort(recipe.rounds)
    # No element of a user's update is above the clip. Nor is that of a record, but a device has many of them.
    longest = clip * (recipe.capacity if options.unit == RECORD else 1)
    bound = max(clip, min(longest, (Ring(bits=recipe.ring_bits).half - privacy.rows.tail - 1) // cohort))
    return {"cohort": cohort, "fraction_bits": FRACTION_BITS, "bound": bound, "privacy": privacy}
