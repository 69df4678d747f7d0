"""Training with differential privacy in one process: clipped updates, devices drawn at random, noise on the sum.

    central   each of two servers adds noise of σ = multiplier · clip to its share: the sum carries both
    local     each device adds noise of that σ to its whole update before anybody sees it: the sum carries all of it

The noise is the product's own, in the ring. Devices take part with a fixed probability each, as the accountant assumes.

Local noise is defined by `upload`, device by device. Drawing it once for all devices of a round is a shortcut to the
same sum: from the smallest σ that there is on, n discrete Gaussians add up to one of n times the variance but for a
chance far below 2^−1000 (Kairouz, Liu and Steinke 2021).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import partial

import numpy as np

from secemb_party.evaluation import Share
from secemb_party.storage import Model
from secemb_sdk.models import Floats, Ratings
from secemb_sdk.models.update import Doubles
from secemb_shared.messages import RoundSpec
from secemb_shared.messages.privacy import RECORD, USER
from secemb_shared.prg import RingArray
from secemb_shared.privacy import Mechanism, add_noise, clip_each_to_steps, clip_to_steps
from secemb_shared.privacy.clip import Steps
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

    unit: str
    clip: int  # steps
    multiplier: Fraction | None = None  # none: clipped, without noise
    where: str = CENTRAL
    device_by_device: bool = False  # local noise without the shortcut

    def add(self, round_: RoundSpec, model: Model, participants: Sequence[Participant]) -> Share:
        """Return the sum of clipped updates with the noise on it."""
        total = Share.empty(round_)
        if self.where == LOCAL and self.device_by_device:
            return sum((self.upload(round_, model, one) for one in participants), start=total)
        for one in participants:
            self._add_update(total, round_, model, one)
        if self.where == LOCAL:
            self._add_noise(total, times=len(participants))
        else:
            for _server in range(2):
                self._add_noise(total)
        return total

    def upload(self, round_: RoundSpec, model: Model, one: Participant) -> Share:
        """Return what a device with noise of its own sends.

        It is as large as the model: a row without noise would say that the device has not rated its item.
        """
        own = Share.empty(round_)
        self._add_update(own, round_, model, one)
        self._add_noise(own)
        return own

    def _add_update(self, total: Share, round_: RoundSpec, model: Model, one: Participant) -> None:
        updates, dense = one.train(one.ratings, model.rows[one.ratings.items])
        by_row, by_dense = self._cut(updates, dense, round_.task.ring.fraction_bits)
        total.rows[one.ratings.items] += _in_ring(by_row, total.rows)
        np.add(total.dense, _in_ring(by_dense, total.dense), out=total.dense)

    def _cut(self, updates: np.ndarray, dense: np.ndarray, fraction_bits: int) -> list[Steps]:
        if self.unit == USER:
            return clip_to_steps([updates, dense], limit=self.clip, fraction_bits=fraction_bits)
        # Without a dense part a rating's gradient is the row of its item and nothing else. With one, devices have cut
        # already, and this changes nothing.
        (by_row,) = clip_each_to_steps([updates], limit=self.clip, fraction_bits=fraction_bits)
        return [by_row, np.rint(dense * 2.0**fraction_bits).astype(np.int64)]

    def _add_noise(self, total: Share, *, times: int = 1) -> None:
        """Add noise of so many times the variance to every element."""
        if self.multiplier is None:
            return
        variance = times * Mechanism(clip=self.clip, multiplier=self.multiplier).variance
        for part in (total.rows, total.dense):
            add_noise(part, variance=variance)


def _in_ring(steps: Steps, like: RingArray) -> RingArray:
    """Return whole steps as elements of the ring: no number is made of them on the way, for there are millions."""
    return steps.view(np.uint64).astype(like.dtype)


def taking_part(number: int, *, people: int, cohort: int, seed: int) -> Indices:
    """Return who takes part in a round: about a cohort; the drawing of a round with fewer than two is repeated."""
    rate = min(1.0, cohort / people)
    random = np.random.default_rng([seed, _TAKING_PART, number])
    while (found := np.flatnonzero(random.random(people) < rate)).size < 2:
        pass
    return found


def rounds_of_the_busiest(rounds: int, *, people: int, cohort: int, seed: int) -> int:
    """Return in how many of a run's rounds the device takes part that does so most often."""
    everybody = [taking_part(number, people=people, cohort=cohort, seed=seed) for number in range(rounds)]
    return int(np.bincount(np.concatenate(everybody)).max())


class SampledPopulation(Population):
    """All devices, each of which takes part in a round with the same probability, whatever the others do."""

    def people_of(self, number: int) -> Indices:
        """Return who takes part in a round, counted from zero."""
        return taking_part(number, people=len(self.devices), cohort=self._cohort, seed=self._seed)


class NoisyTraining(Training):
    """A run with sampled devices, clipped updates and noise."""

    def __init__(self, recipe: Recipe, data: Split, *, seed: int, protection: Protection) -> None:
        super().__init__(recipe, data, seed=seed, add=protection.add)
        self._population = SampledPopulation(data.train, recipe.models(data.train), cohort=self.task.cohort, seed=seed)
        self._protection = protection

    def _participants(self, people: Indices) -> list[Participant]:
        """Return who takes part; where each rating is cut together with its dense part, with what they upload."""
        found = super()._participants(people)
        if self._protection.unit != RECORD or not self.task.dense_size:
            return found
        from secemb_tools.simulation.records import learn_by_record  # needs torch

        devices, ratings = [self._population.devices[person] for person in people], [one.ratings for one in found]
        limits = {"limit": self._protection.clip, "fraction_bits": self.task.fraction_bits}
        updates = []
        learned = learn_by_record(devices, ratings, self.model.rows, self.model.dense, **limits)
        for device, one in zip(devices, learned, strict=True):
            device.move(one.private, rate=float(self.task.row_rate))
            updates.append((one.rows, one.dense))
        return [Participant(one, partial(_known, update)) for one, update in zip(ratings, updates, strict=True)]


def _known(update: tuple[Doubles, Doubles], _ratings: Ratings, _rows: Floats) -> tuple[Doubles, Doubles]:
    return update
