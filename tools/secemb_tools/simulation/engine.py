"""A run: rounds of devices, the sum of their updates with its noise, server 0's optimiser, and the error.

Noise is for tasks with a privacy budget:

    central   each of the two servers adds noise to its share, as the services do: the sum contains both
    local     each device adds noise to its whole update before sending it (DP-FedRec): the sum contains all of it
    none      updates are clipped as the task requires, without noise, for comparison

Local noise is defined device by device (`rounds.blurred_update`). Drawing it once for all devices of a round is a
shortcut to the same sum: for every allowed σ, the sum of n discrete Gaussians is one with n times the
variance, up to a statistical distance far below 2^−1000 (Kairouz, Liu and Steinke 2021).
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Self

import numpy as np

from secemb_party.evaluation import Share, blur
from secemb_party.storage import Model, first_model
from secemb_sdk.models import Floats, PrivateState
from secemb_sdk.models.scale import Scale
from secemb_sdk.models.update import fit_private
from secemb_server0.figures import pool
from secemb_server0.reconstruct import make_optimiser, move_model, read_result, read_sums
from secemb_shared.messages import RoundSpec
from secemb_shared.messages.measures import Mark
from secemb_shared.messages.spec import EVALUATE, TRAIN
from secemb_shared.privacy import add_noise
from secemb_tools.datasets import RatingSet
from secemb_tools.simulation.devices import Devices
from secemb_tools.simulation.processes import Processes
from secemb_tools.simulation.rounds import BLURRED, PLAIN, PRIVATE, Counts, Lossy, Part
from secemb_tools.simulation.world import World

CENTRAL, LOCAL, NO_NOISE = "central", "local", "none"
RUN_WAYS = (PRIVATE, PLAIN)


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One round in a run's table. It does not depend on timing, the transport or the protocol's random bytes."""

    round: int
    kind: str  # train or evaluate
    sessions: int
    version: int  # of the model, after the round
    digest: str  # of that version
    figures: dict[str, float] = field(default_factory=dict)  # of the round's devices, if it was an evaluation
    sums: list[float] = field(default_factory=list)  # what the figures are based on
    window: dict[str, Any] = field(default_factory=dict)  # figures of the newest evaluations together, and their rounds

    @property
    def rmse(self) -> float | None:
        """Return the error on the fleet's held-out ratings."""
        return self.figures.get("rmse")

    @property
    def mae(self) -> float | None:
        """Return the mean absolute error on the fleet's held-out ratings."""
        return self.figures.get("mae")

    @property
    def ndcg(self) -> float | None:
        """Return the NDCG of the fleet's held-out items."""
        return self.figures.get("ndcg")

    @property
    def mark(self) -> Mark | None:
        """Return the figure by which models are compared; None if it was not measured."""
        return Mark.of(self.window)

    def as_json(self) -> dict[str, Any]:
        """Return the row as plain data."""
        return {**asdict(self), "rmse": self.rmse, "mae": self.mae}

    @classmethod
    def read(cls, found: Mapping[str, Any]) -> Self:
        """Read `as_json`."""
        return cls(**{name: value for name, value in found.items() if name not in ("rmse", "mae")})


class Engine:
    """Runs the rounds of a world, privately or plainly; two engines for one world differ only in that."""

    def __init__(
        self,
        world: World,
        *,
        way: str,
        noise: str = CENTRAL,
        device_by_device: bool = False,  # local noise without the shortcut
        processes: Processes | None = None,
        lossy: Lossy | None = None,  # transforms each device's rows, to compare compressors in a plain run
    ) -> None:
        task = world.task
        if lossy is not None and (way != PLAIN or noise == LOCAL):
            raise ValueError("only a plain run without noise of devices can be lossy")
        if noise == LOCAL and (way != PLAIN or task.privacy is None):
            raise ValueError("local noise needs a plain run of a task with a privacy budget")
        self.world, self.way, self.rounds, self.counts = world, way, 0, Counts()
        self.model: Model = first_model(task)
        self.optimiser = make_optimiser(task)
        self.privates: dict[int, PrivateState] = {}  # of everybody who has trained
        self.evaluated: dict[int, list[float]] = {}  # the sums of each evaluation, by its round
        self.best: tuple[float, Model] | None = None  # the version with the best evaluation
        self.whole: Model | None = None  # the last version that was trained, where the model is without its vectors
        self._noise, self._device_by_device, self._lossy = noise, device_by_device, lossy
        self._devices, self._processes = Devices(world), processes or Processes()

    def step(self) -> Row:
        """Run one round and return its outcome."""
        number, people = self.rounds, self.world.schedule.people_of(self.rounds).tolist()
        round_ = RoundSpec(
            task=self.world.task,
            number=number,
            model_version=self.model.version,
            model_digest=self.model.digest,
            kind=self.world.schedule.kind_of(number),
        )
        total = self._total(round_, people)
        found: dict[str, Any] = {}
        if round_.kind == TRAIN:
            self.model = move_model(self.optimiser, self.world.task, self.model, total, len(people))
        else:
            found = {"figures": read_result(round_, total, len(people))}
        if round_.kind == EVALUATE:
            self.evaluated[number] = sums = read_sums(total)
            found |= {"sums": sums, "window": pool(self.world.task, self.evaluated)}
        self.rounds += 1
        row = Row(
            round=number,
            kind=round_.kind,
            sessions=len(people),
            version=self.model.version,
            digest=self.model.digest.hex(),
            **found,
        )
        if (mark := row.mark) is not None and (self.best is None or mark.value < self.best[0]):
            self.best = mark.value, self.model
        return row

    def return_to_best(self) -> None:
        """Restore the version with the best evaluation, for a run that stops because later ones were worse."""
        if self.best is not None:
            self.model = self.best[1]

    def leave_vectors_out(self) -> None:
        """Make the biases alone the model, as a new version; they are the last element of each row."""
        self.whole, rows = self.model, np.zeros_like(self.model.rows)
        rows[:, -1] = self.whole.rows[:, -1]
        self.model = replace(self.whole, version=self.whole.version + 1, rows=rows)

    def predict(self, test: RatingSet) -> Floats:
        """Return a prediction for each held-out rating, by its person's device; it may exceed the scale."""
        predictions = np.empty(test.values.size, dtype=np.float32)
        for person, own in enumerate(test.by_person()):
            if own.stop > own.start:
                items, model = test.items[own], self.world.models(person)
                rows, private = self.model.rows[items], self.private_of(person)
                predictions[own] = model.scores(rows, self.model.dense, private, items)
        return Scale.of(self.world.task).restore(predictions)

    def rmse(self, test: RatingSet) -> float:
        """Return the error on held-out ratings, with predictions clipped to the scale."""
        scale = Scale.of(self.world.task)
        errors = np.clip(self.predict(test).astype(np.float64), scale.lowest, scale.highest) - test.values
        return float(np.sqrt(errors @ errors / test.values.size))

    def private_of(self, person: int) -> Floats:
        """Return a person's private part for the current model, from all of the device's training ratings."""
        model = self.world.model_of(person)
        own = self.privates.get(person) or PrivateState.begin(model, np.random.default_rng())
        ratings = self._devices[person].ratings_to_fit()
        return fit_private(model, own, self.model.rows[ratings.items], self.model.dense, ratings).values

    def _total(self, round_: RoundSpec, people: Sequence[int]) -> Share:
        """Return the sum of everybody's updates, with the noise on it."""
        each = self._noise == LOCAL and self._device_by_device
        part = Part(
            way=BLURRED if each else self.way,
            number=round_.number,
            model=self.model,
            people={person: self.privates.get(person) for person in people},
            lossy=self._lossy,
        )
        outcome = self._processes.take_part(self._devices, part)
        self.privates.update(outcome.moved)
        self.counts.add(outcome.counts)
        if self._noise == CENTRAL:
            for server in range(2):
                share = outcome.shares[server if self.way == PRIVATE else 0]  # a plain run has one sum for both
                blur(round_, share, self.world.random_bytes("noise of a server", round_.number, server))
        elif self._noise == LOCAL and not each:
            self._blur_for(outcome.shares[0], round_, len(people))
        return sum(outcome.shares[1:], start=outcome.shares[0])

    def _blur_for(self, total: Share, round_: RoundSpec, devices: int) -> None:
        """Add the noise of this many devices at once."""
        privacy, random_bytes = round_.task.privacy, self.world.random_bytes("noise of devices", round_.number)
        if privacy is None:
            return
        add_noise(total.rows, variance=devices * privacy.rows.variance, random_bytes=random_bytes)
        add_noise(total.dense, variance=devices * privacy.dense.variance, random_bytes=random_bytes)
