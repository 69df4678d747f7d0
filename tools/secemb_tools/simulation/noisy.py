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
from secemb_party.models import Model
from secemb_sdk.models import Floats, Ratings
from secemb_sdk.models.clipping import Clip, Doubles, clip_update
from secemb_shared.messages import RoundSpec
from secemb_shared.messages.privacy import RECORD, USER
from secemb_shared.privacy import Mechanism, add_noise, clip_to_steps
from secemb_shared.randomness import Indices
from secemb_tools.datasets import Split
from secemb_tools.simulation.population import Device, Population
from secemb_tools.simulation.recipes import Recipe
from secemb_tools.simulation.summing import Participant, Train
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
        ring = round_.task.ring
        updates, dense = one.train(one.ratings, model.rows[one.ratings.items])
        by_row, by_dense = self._cut(updates, dense, ring.fraction_bits)
        total.rows[one.ratings.items] += ring.encode(by_row)
        np.add(total.dense, ring.encode(by_dense), out=total.dense)

    def _cut(self, updates: np.ndarray, dense: np.ndarray, fraction_bits: int) -> tuple[np.ndarray, np.ndarray]:
        if self.unit == USER:
            return clip_update(updates, dense, Clip(unit=USER, limit=self.clip, fraction_bits=fraction_bits))
        # Without a dense part a rating's gradient is the row of its item and nothing else. With one, devices have cut
        # already, and this changes nothing.
        steps = [clip_to_steps([row], limit=self.clip, fraction_bits=fraction_bits)[0] for row in updates]
        return np.array(steps).reshape(updates.shape) / 2.0**fraction_bits, dense

    def _add_noise(self, total: Share, *, times: int = 1) -> None:
        """Add noise of so many times the variance to every element."""
        if self.multiplier is None:
            return
        variance = times * Mechanism(clip=self.clip, multiplier=self.multiplier).variance
        for part in (total.rows, total.dense):
            add_noise(part, variance=variance)


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

    def _participant(self, person: int) -> Participant:
        one = super()._participant(person)
        if self._protection.unit != RECORD or not self.task.dense_size:
            return one
        return Participant(one.ratings, partial(self._train_by_record, self._population.devices[person], one.train))

    def _train_by_record(self, device: Device, train: Train, ratings: Ratings, rows: Floats) -> tuple[Doubles, Doubles]:
        """Let a device learn as ever, and upload the sum of what each rating adds, cut one by one."""
        from secemb_tools.simulation.records import cut_each  # needs torch

        before = device.private
        train(ratings, rows)  # moves the private part
        limits = {"limit": self._protection.clip, "fraction_bits": self.task.fraction_bits}
        return cut_each(device.model, rows, self.model.dense, before, ratings, **limits)
