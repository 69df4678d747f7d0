"""What a run is about: who takes part when, with which ratings and which model. All of it follows from a seed."""

import hashlib
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from secemb_sdk.models import Model, registry
from secemb_shared.messages import TaskSpec
from secemb_shared.messages.spec import EVALUATE, TRAIN
from secemb_shared.randomness import Indices
from secemb_tools import output
from secemb_tools.datasets import RatingSet, read_ratings
from secemb_tools.datasets.made_up import make_ratings
from secemb_tools.errors import ScenarioError
from secemb_tools.simulation.recipes import Recipe
from secemb_tools.simulation.reproducible import Reproducible

MADE_UP = "made-up"
HOLD_OUT = 0.1  # of a person's ratings: for evaluation, never trained on
_LARGEST_SUM = 2**31 - 1  # of the ring that recipes use
_EPOCH, _PANEL, _FEW = 21, 22, 23  # what a seed is used for
# Rates for tens of rounds instead of hundreds: it is the beginning that people watch. Other models take the recipe's.
_QUICK: dict[str, dict[str, Any]] = {
    "mf": {"rate": "0.08", "penalty": 0.05},
    "ncf": {"rate": "0.02", "scale": "0.1"},
    "fm": {"rate": "0.06", "dense_rate": "0.01", "dense_penalty": 1.0, "fraction_bits": 14},
    "deepfm": {"rate": "0.06", "dense_rate": "0.005", "dense_penalty": 1.0, "fraction_bits": 14},
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """What somebody asks for."""

    model: str = "mf"
    data: str = MADE_UP  # or a directory that holds a rating set
    devices: int = 200
    items: int = 3000  # of the made-up catalogue
    rounds: int = 30
    cohort: int = 40
    capacity: int = 100  # most ratings of a device that take part (m')
    dimension: int = 16
    evaluate_every: int = 3
    epochs: int = 4
    rate: str | None = None  # of rows; None: as the model's quick recipe says
    seed: int = 1

    def __post_init__(self) -> None:
        registry.find(self.model)
        if not 2 <= self.cohort <= self.devices:
            raise ScenarioError("a round needs at least 2 devices and at most as many as there are")
        if self.rounds < 1 or self.evaluate_every < 2 or self.seed < 0 or self.capacity < 4 or self.dimension < 1:
            raise ScenarioError("rounds must be at least 1, evaluations 2 rounds apart, capacity 4, and the seed 0")

    def as_json(self) -> dict[str, Any]:
        """Return the wishes as plain data."""
        return asdict(self)

    @property
    def digest(self) -> str:
        """Return eight digits that name this combination."""
        return hashlib.sha256(repr(sorted(self.as_json().items())).encode()).hexdigest()[:8]


class World:
    """A scenario with its people, its catalogue and its task."""

    def __init__(self, scenario: Scenario, ratings: RatingSet | None = None) -> None:
        self.scenario = scenario
        self.ratings = self._fewer(ratings if ratings is not None else self._made_up())
        self._mine = self.ratings.by_person()
        self._recipe = self._make_recipe()
        self._make_model = self._recipe.models(self.ratings)

    @cached_property
    def task(self) -> TaskSpec:
        """Return the task that two servers are given; the same scenario has the same task everywhere."""
        task = self._recipe.task(self.ratings, seed=self.scenario.seed)
        bound = min(task.bound, _LARGEST_SUM // self.scenario.cohort)
        # A round waits for everybody: the run decides who takes part, and the clock never does.
        cohort = self.scenario.cohort
        return replace(
            task,
            cohort=cohort,
            min_cohort=cohort,
            bound=bound,
            join_seconds=300,
            upload_seconds=600,
            relay_key=self.relay_identity.public_key().public_bytes_raw().hex(),
        )

    @property
    def relay_identity(self) -> Ed25519PrivateKey:
        """Return who server 1 is to devices. The task names it, so it follows from the seed: for this machine only."""
        name = f"secemb simulation {self.scenario.seed} server 1"
        return Ed25519PrivateKey.from_private_bytes(hashlib.sha256(name.encode()).digest())

    def kind_of(self, number: int) -> str:
        """Return what the round of a number is for, as server 0 decides it from its settings."""
        return EVALUATE if (number + 1) % self.scenario.evaluate_every == 0 else TRAIN

    def people_of(self, number: int) -> Indices:
        """Return who takes part: in training everybody in turn, in evaluations always the same, to compare."""
        scenario = self.scenario
        if self.kind_of(number) == EVALUATE:
            return self._order(_PANEL, 0)[: scenario.cohort]
        trained = number - number // scenario.evaluate_every
        epoch, place = divmod(trained, scenario.devices // scenario.cohort)
        return self._order(_EPOCH, epoch)[place * scenario.cohort : (place + 1) * scenario.cohort]

    def ratings_of(self, person: int) -> dict[int, float]:
        """Return what a person has rated."""
        mine = self._mine[person]
        return dict(zip(self.ratings.items[mine].tolist(), self.ratings.values[mine].tolist(), strict=True))

    def ratings_a_device(self) -> tuple[int, int]:
        """Return how many ratings the device with the fewest has, and the one with the most."""
        counts = [mine.stop - mine.start for mine in self._mine]
        return min(counts), max(counts)

    def model_of(self, person: int) -> Model:
        """Return the model as this person's device has it."""
        return Reproducible(self._make_model(person), seed=self.scenario.seed, person=person)

    def hold_out_key_of(self, person: int) -> bytes:
        """Return the key by which this person's device chooses what it holds out; nothing is secret in a run."""
        return hashlib.sha256(f"secemb simulation {self.scenario.seed} {person}".encode()).digest()

    def _order(self, use: int, epoch: int) -> Indices:
        return np.random.default_rng([self.scenario.seed, use, epoch]).permutation(self.scenario.devices)

    def _made_up(self) -> RatingSet:
        wish = self.scenario
        return make_ratings(people=wish.devices, items=wish.items, most=wish.capacity, seed=wish.seed)

    def _fewer(self, ratings: RatingSet) -> RatingSet:
        """Return the ratings of the first so many people, at most `capacity` each: no round has to leave one out."""
        wish = self.scenario
        if ratings.person_count < wish.devices:
            raise ScenarioError(f"{ratings.name} has {ratings.person_count} people; ask for at most so many devices")
        kept = ratings.only(np.flatnonzero(ratings.people < wish.devices))
        random = np.random.default_rng([wish.seed, _FEW])
        chosen = [
            np.arange(mine.start, mine.stop)
            if mine.stop - mine.start <= wish.capacity
            else mine.start + random.choice(mine.stop - mine.start, wish.capacity, replace=False)
            for mine in kept.by_person()[: wish.devices]
        ]
        few = kept.only(np.concatenate(chosen))
        return replace(few, user_features=few.user_features[: wish.devices])

    def _make_recipe(self) -> Recipe:
        wish = self.scenario
        settings = _QUICK.get(wish.model, {}) | ({} if wish.rate is None else {"rate": wish.rate})
        return Recipe(
            model=wish.model,
            rounds=wish.rounds,
            capacity=wish.capacity,
            cohort=min(wish.cohort, 100),  # for the recipe's bound; the task gets its own
            dimension=wish.dimension,
            **settings,
        )


SHARE = 5  # one device in so many takes part in a round
LOWEST, HIGHEST = (
    1.0,
    5.0,
)  # what ratings are stretched to that are not from 0 to 5: rates and bounds are made for these


def make_world(
    *, devices: int | None = None, cohort: int | None = None, data: Path | None = None, **more: Any
) -> World:
    """Return the world of a scenario; with a rating set everybody in it is a device unless fewer are asked for."""
    ratings: RatingSet | None = None
    if data is not None:
        ratings = on_scale(read_ratings(data))
    count = devices or (ratings.person_count if ratings is not None else Scenario().devices)
    part = cohort or max(2, min(count, -(-count // SHARE), 100))
    wishes: dict[str, Any] = {"devices": count, "cohort": part, **more}
    if ratings is not None:
        wishes |= {"data": str(data), "items": ratings.item_count}
    return World(Scenario(**wishes), ratings)


def on_scale(ratings: RatingSet) -> RatingSet:
    """Return ratings as models expect them: those from 0 to 5 as they are, others stretched, which is said."""
    lowest, highest = float(ratings.values.min()), float(ratings.values.max())
    if lowest >= 0 and highest <= HIGHEST:
        return ratings
    output.note(
        f"{ratings.name} has ratings from {lowest:g} to {highest:g}: they are stretched to {LOWEST:g} to {HIGHEST:g}, "
        "and errors are measured on that scale"
    )
    parts = (ratings.values - lowest) / max(highest - lowest, 1e-6)
    return replace(ratings, values=(LOWEST + (HIGHEST - LOWEST) * parts).astype(ratings.values.dtype))
