"""A run in one process: rounds of devices, the sum of their updates, server 0's optimiser, and private evaluation."""

from dataclasses import dataclass
from typing import Any

from secemb_party.storage import Model, Shape, initial_model
from secemb_server0.leader import read_result
from secemb_server0.optimiser import Gradient
from secemb_server0.reconstruct import make_optimiser
from secemb_shared.messages import RoundSpec
from secemb_shared.messages.canonical import decimal
from secemb_shared.messages.spec import TRAIN
from secemb_tools.simulation.devices import SimulatedDevice
from secemb_tools.simulation.rounds import Add, add_plainly, add_privately
from secemb_tools.simulation.scenario import World

PRIVATE, PLAIN = "private", "plain"
WAYS: dict[str, Add] = {PRIVATE: add_privately, PLAIN: add_plainly}


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One round in a run's table. Nothing in it depends on time, on the wire or on what the protocol draws."""

    round: int
    kind: str  # train or evaluate
    sessions: int
    version: int  # of the model, after the round
    digest: str  # of that version
    rmse: float | None = None  # of the fleet's held-out ratings, where the round was an evaluation
    mae: float | None = None

    def as_json(self) -> dict[str, Any]:
        """Return the row as plain data."""
        return {name: getattr(self, name) for name in ("round", "kind", "sessions", "version", "digest", "rmse", "mae")}


class Engine:
    """Runs the rounds of a world, privately or plainly."""

    def __init__(self, world: World, *, way: str) -> None:
        task, scale = world.task, decimal(world.task.initial_scale)
        self.world, self.way, self.rounds = world, way, 0
        self.model: Model = initial_model(
            task.task_id, Shape.of(task), seed=task.seed, scale=scale, bias_column=True, dense_scale=scale
        )
        self.optimiser = make_optimiser(task)
        self.devices = [SimulatedDevice(world, person) for person in range(world.scenario.devices)]

    def step(self) -> Row:
        """Run one round and return what became of it."""
        number, kind = self.rounds, self.world.kind_of(self.rounds)
        people = self.world.people_of(number)
        round_ = RoundSpec(
            task=self.world.task,
            number=number,
            model_version=self.model.version,
            model_digest=self.model.digest,
            kind=kind,
        )
        total = WAYS[self.way](round_, self.model, [self.devices[int(person)] for person in people])
        found: dict[str, float] = {}
        if kind == TRAIN:
            ring = self.world.task.ring
            mean = Gradient.mean(ring, rows=total.rows, dense=total.dense, sessions=people.size)
            self.model = self.optimiser.step(self.model, mean)
        else:
            found = read_result(round_, total, people.size)
        self.rounds += 1
        return Row(
            round=number,
            kind=kind,
            sessions=people.size,
            version=self.model.version,
            digest=self.model.digest.hex(),
            rmse=found.get("rmse"),
            mae=found.get("mae"),
        )
