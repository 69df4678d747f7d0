"""One run: rounds of devices, server 0's optimiser, and the error on ratings that nobody trained on."""

from functools import partial

import numpy as np

from secemb_party.storage import Model, Shape, initial_model
from secemb_server0.optimiser import Gradient
from secemb_server0.reconstruct import make_optimiser
from secemb_shared.messages import RoundSpec
from secemb_shared.randomness import Indices
from secemb_tools.datasets import Split
from secemb_tools.simulation.population import Counts, Device, Population
from secemb_tools.simulation.recipes import Recipe
from secemb_tools.simulation.summing import Participant, Sum

LOWEST, HIGHEST = 1.0, 5.0


class Training:
    """A federated run of one recipe; two with the same seed differ in how they add, and in nothing else."""

    def __init__(self, recipe: Recipe, data: Split, *, seed: int, add: Sum) -> None:
        self.task = recipe.task(data.train, seed=seed)
        self.counts = Counts()
        self.rounds = 0
        scale = float(recipe.scale)
        self.model: Model = initial_model(
            self.task.task_id, Shape.of(self.task), seed=seed, scale=scale, bias_column=True, dense_scale=scale
        )
        self._test, self._add = data.test, add
        self._population = Population(data.train, recipe.models(data.train), cohort=self.task.cohort, seed=seed)
        self._optimiser = make_optimiser(self.task)

    def step(self) -> None:
        """Run one round: devices train, their updates are added, server 0 moves the model."""
        round_ = RoundSpec(
            task=self.task,
            number=self.rounds + 1,
            model_version=self.model.version,
            model_digest=self.model.digest,
        )
        people = self._population.people_of(self.rounds)
        total = self._add(round_, self.model, self._participants(people))
        mean = Gradient.mean(self.task.ring, rows=total.rows, dense=total.dense, sessions=people.size)
        self.model = self._optimiser.step(self.model, mean)
        self.rounds += 1

    def rmse(self) -> float:
        """Return the error on the test ratings, each device asked about its own."""
        devices = zip(self._population.devices, self._test.by_person(), strict=True)
        squares = [self._squares(device, own) for device, own in devices if own.stop > own.start]
        return float(np.sqrt(sum(squares) / self._test.values.size))

    def _participants(self, people: Indices) -> list[Participant]:
        return [self._participant(int(person)) for person in people]

    def _participant(self, person: int) -> Participant:
        ratings = self._population.ratings_of(person, number=self.rounds, capacity=self.task.capacity)
        train = partial(self._population.devices[person].train, self.task, self.model.dense, self.counts)
        return Participant(ratings, train)

    def _squares(self, device: Device, own: slice) -> float:
        items = self._test.items[own]
        scores = device.model.scores(self.model.rows[items], self.model.dense, device.private, items)
        errors = np.clip(scores, LOWEST, HIGHEST).astype(np.float64) - self._test.values[own]
        return float(errors @ errors)
