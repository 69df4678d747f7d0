"""The people of a rating set as devices: what each has rated, what it keeps to itself, and who takes part when."""

from dataclasses import dataclass

import numpy as np

from secemb_sdk.models import Floats, Model, NotFiniteLossError, PrivateState, Ratings, fit_bound, learn
from secemb_shared.messages import TaskSpec
from secemb_shared.randomness import Indices
from secemb_tools.datasets import RatingSet
from secemb_tools.simulation.recipes import MakeModel

_EPOCH, _TRUNCATION, _FIRST = 1, 2, 3  # what a seed is used for


@dataclass(slots=True, repr=False)
class Counts:
    """What happened to devices in a run."""

    sessions: int = 0
    clipped: int = 0  # sessions with an update that was cut to the task's bound
    failed: int = 0  # sessions that uploaded zeros


class Device:
    """One person's device: its model, its ratings and its private part."""

    def __init__(self, model: Model, ratings: Ratings, random: np.random.Generator) -> None:
        self.model = model
        self._all = ratings
        self._state = PrivateState.begin(model, random)

    @property
    def private(self) -> Floats:
        """Return the private part as it is now."""
        return self._state.values

    def move(self, gradient: Floats, *, rate: float) -> None:
        """Let the private part take a step against a gradient that was found elsewhere."""
        self._state = self._state.step(gradient, rate=rate)

    def draw(self, capacity: int, random: np.random.Generator) -> Ratings:
        """Return at most so many of the ratings, sorted by item."""
        if self._all.items.size <= capacity:
            return self._all
        kept = np.sort(random.choice(self._all.items.size, capacity, replace=False))
        return Ratings(self._all.items[kept], self._all.values[kept])

    def train(
        self, task: TaskSpec, dense: Floats, counts: Counts, ratings: Ratings, rows: Floats
    ) -> tuple[Floats, Floats]:
        """Learn from these ratings; return what to upload for the rows and for the dense part."""
        counts.sessions += 1
        rate = float(task.row_rate)
        try:
            by_row, by_dense, self._state = learn(self.model, self._state, rows, dense, ratings, rate=rate)
        except NotFiniteLossError:
            counts.failed += 1
            return np.zeros_like(rows), np.zeros_like(dense)
        (by_row, rows_cut), (by_dense, dense_cut) = fit_bound(by_row, task), fit_bound(by_dense, task)
        counts.clipped += rows_cut or dense_cut
        return by_row, by_dense


class Population:
    """All devices, and who takes part in which round."""

    def __init__(self, ratings: RatingSet, make_model: MakeModel, *, cohort: int, seed: int) -> None:
        self._cohort, self._seed = cohort, seed
        self.devices = [
            Device(
                make_model(person),
                Ratings(ratings.items[own], ratings.values[own]),
                np.random.default_rng([seed, _FIRST, person]),
            )
            for person, own in enumerate(ratings.by_person())
        ]

    def people_of(self, number: int) -> Indices:
        """Return who takes part in a round, counted from zero: everybody once in an epoch of rounds.

        An epoch's last round has those who are left. If that is one person, too few for a sum, they wait for the next.
        """
        starts = range(0, len(self.devices) - 1, self._cohort)
        epoch, place = divmod(number, len(starts))
        order = np.random.default_rng([self._seed, _EPOCH, epoch]).permutation(len(self.devices))
        return order[starts[place] : starts[place] + self._cohort]

    def ratings_of(self, person: int, *, number: int, capacity: int) -> Ratings:
        """Return what a person's device brings to a round: drawn afresh each time if it has more than may take part."""
        return self.devices[person].draw(capacity, np.random.default_rng([self._seed, _TRUNCATION, number, person]))
