"""Training with differential privacy in one process: clipped updates, devices drawn at random, noise on the sum.

    central   each of two servers adds noise of σ = multiplier · clip to its share: the sum carries both
    local     each device adds its own noise to its whole update before anybody sees it: the sum carries all of it

The noise is the product's own, in the ring. Devices take part with a fixed probability each, as the accountant assumes.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from secemb_party.evaluation import Share
from secemb_party.models import Model
from secemb_sdk.models.clipping import USER, Clip, clip_update
from secemb_shared.messages import RoundSpec
from secemb_shared.privacy import Mechanism, add_noise, clip_to_steps
from secemb_shared.randomness import Indices
from secemb_tools.datasets import Split
from secemb_tools.simulation.population import Population
from secemb_tools.simulation.recipes import Recipe
from secemb_tools.simulation.summing import Participant
from secemb_tools.simulation.training import Training

CENTRAL, LOCAL = "central", "local"
_TAKING_PART = 4  # what a seed is used for


@dataclass(frozen=True, slots=True, kw_only=True)
class Protection:
    """How updates are clipped and where noise is added."""

    unit: str  # user, or record for models without a dense part
    clip: int  # steps
    multiplier: Fraction | None = None  # none: clipped, without noise
    where: str = CENTRAL

    def add(self, round_: RoundSpec, model: Model, participants: Sequence[Participant]) -> Share:
        """Return the sum of clipped updates with the noise on it."""
        total, ring = Share.empty(round_), round_.task.ring
        for one in participants:
            updates, dense = one.train(one.ratings, model.rows[one.ratings.items])
            by_row, by_dense = self._cut(updates, dense, ring.fraction_bits)
            total.rows[one.ratings.items] += ring.encode(by_row)
            np.add(total.dense, ring.encode(by_dense), out=total.dense)
        if self.multiplier is not None:
            self._add_noise(total, self.multiplier, len(participants))
        return total

    def _cut(self, updates: np.ndarray, dense: np.ndarray, fraction_bits: int) -> tuple[np.ndarray, np.ndarray]:
        if self.unit == USER:
            return clip_update(updates, dense, Clip(unit=USER, limit=self.clip, fraction_bits=fraction_bits))
        # Without a dense part a rating's gradient is the row of its item and nothing else.
        steps = [clip_to_steps([row], limit=self.clip, fraction_bits=fraction_bits)[0] for row in updates]
        return np.array(steps).reshape(updates.shape) / 2.0**fraction_bits, dense

    def _add_noise(self, total: Share, multiplier: Fraction, devices: int) -> None:
        variance = Mechanism(clip=self.clip, multiplier=multiplier).variance
        # The noise of many devices is drawn at once: their sum is as good as a discrete Gaussian of the whole variance.
        drawn = [variance * devices] if self.where == LOCAL else [variance, variance]
        for part in (total.rows, total.dense):
            for one in drawn:
                add_noise(part, variance=one)


class SampledPopulation(Population):
    """All devices, each of which takes part in a round with the same probability, whatever the others do."""

    def people_of(self, number: int) -> Indices:
        """Return who takes part: about a cohort; the drawing of a round with fewer than two is repeated."""
        rate = min(1.0, self._cohort / len(self.devices))
        random = np.random.default_rng([self._seed, _TAKING_PART, number])
        while (people := np.flatnonzero(random.random(len(self.devices)) < rate)).size < 2:
            pass
        return people


class NoisyTraining(Training):
    """A run with sampled devices, clipped updates and noise."""

    def __init__(self, recipe: Recipe, data: Split, *, seed: int, protection: Protection) -> None:
        super().__init__(recipe, data, seed=seed, add=protection.add)
        self._population = SampledPopulation(data.train, recipe.models(data.train), cohort=self.task.cohort, seed=seed)
