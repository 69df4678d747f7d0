"""What people ask a simulation for, and the world that follows from it."""

import hashlib
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from secemb_sdk.models import registry
from secemb_tools import output
from secemb_tools.datasets import RatingSet, read_ratings
from secemb_tools.datasets.made_up import make_ratings
from secemb_tools.errors import ScenarioError
from secemb_tools.simulation.baseline import HIGHEST, LOWEST
from secemb_tools.simulation.recipes import Recipe
from secemb_tools.simulation.world import InTurn, World

MADE_UP = "made-up"
HOLD_OUT = 0.1  # of a person's ratings: for evaluation, never trained on
_LARGEST_SUM = 2**31 - 1  # of the ring that recipes use
_FEW = 23  # what a seed is used for
# Rates for tens of rounds instead of hundreds: it is the beginning that people watch. Other models take the recipe's.
_QUICK: dict[str, dict[str, Any]] = {
    "mf": {"rate": "0.08", "penalty": 0.05},
    "ncf": {"rate": "0.02", "scale": "0.1"},
    "fm": {"rate": "0.06", "dense_rate": "0.01", "dense_penalty": 1.0, "fraction_bits": 14},
    "deepfm": {"rate": "0.06", "dense_rate": "0.005", "dense_penalty": 1.0, "fraction_bits": 14},
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """The settings of a simulation."""

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
            raise ScenarioError("the cohort must be at least 2 and at most the number of devices")
        if self.rounds < 1 or self.evaluate_every < 2 or self.seed < 0 or self.capacity < 4 or self.dimension < 1:
            raise ScenarioError("rounds and dimension must be at least 1, evaluate_every 2, capacity 4, and the seed 0")

    def as_json(self) -> dict[str, Any]:
        """Return the settings as plain data."""
        return asdict(self)

    @property
    def digest(self) -> str:
        """Return eight digits that name this combination."""
        return hashlib.sha256(repr(sorted(self.as_json().items())).encode()).hexdigest()[:8]


@dataclass(frozen=True, kw_only=True, repr=False, eq=False)
class ScenarioWorld(World):
    """The world of a scenario; the same scenario has the same world everywhere."""

    scenario: Scenario

    @property
    def relay_identity(self) -> Ed25519PrivateKey:
        """Return who server 1 is to devices. The task names it, so it follows from the seed: for this machine only."""
        return _relay_identity(self.seed)


def world_of(scenario: Scenario, ratings: RatingSet | None = None) -> ScenarioWorld:
    """Return the world of a scenario; ratings are made up where none are given."""
    if ratings is None:
        ratings = make_ratings(
            people=scenario.devices, items=scenario.items, most=scenario.capacity, seed=scenario.seed
        )
    few, recipe, seed, cohort = _fewer(scenario, ratings), _recipe_of(scenario), scenario.seed, scenario.cohort
    task = recipe.task(
        few,
        seed=seed,
        min_cohort=cohort,  # a round waits for everybody: the run decides who takes part, and the clock never does
        join_seconds=300,
        upload_seconds=600,
        relay_key=_relay_identity(seed).public_key().public_bytes_raw().hex(),
    )
    schedule = InTurn(
        people=scenario.devices, cohort=cohort, smallest=cohort, seed=seed, evaluate_every=scenario.evaluate_every
    )
    return ScenarioWorld(
        ratings=few,
        recipe=recipe,
        task=task,
        schedule=schedule,
        seed=seed,
        epochs=scenario.epochs,
        hold_out=HOLD_OUT,
        scenario=scenario,
    )


def _relay_identity(seed: int) -> Ed25519PrivateKey:
    name = f"secemb simulation {seed} server 1"
    return Ed25519PrivateKey.from_private_bytes(hashlib.sha256(name.encode()).digest())


def _fewer(scenario: Scenario, ratings: RatingSet) -> RatingSet:
    """Return the ratings of the first `devices` people, at most `capacity` each: no round has to leave one out."""
    if ratings.person_count < scenario.devices:
        raise ScenarioError(f"{ratings.name} has {ratings.person_count:,} people; ask for at most that many devices")
    kept = ratings.only(np.flatnonzero(ratings.people < scenario.devices))
    random = np.random.default_rng([scenario.seed, _FEW])
    chosen = [
        np.arange(mine.start, mine.stop)
        if mine.stop - mine.start <= scenario.capacity
        else mine.start + random.choice(mine.stop - mine.start, scenario.capacity, replace=False)
        for mine in kept.by_person()[: scenario.devices]
    ]
    few = kept.only(np.concatenate(chosen))
    return replace(few, user_features=few.user_features[: scenario.devices])


def _recipe_of(scenario: Scenario) -> Recipe:
    settings = _QUICK.get(scenario.model, {}) | ({} if scenario.rate is None else {"rate": scenario.rate})
    recipe = Recipe(
        model=scenario.model,
        rounds=scenario.rounds,
        capacity=scenario.capacity,
        cohort=scenario.cohort,
        dimension=scenario.dimension,
        **settings,
    )
    return replace(recipe, bound=min(recipe.bound, _LARGEST_SUM // scenario.cohort))


SHARE = 5  # one device in five takes part in a round


def make_world(
    *, devices: int | None = None, cohort: int | None = None, data: Path | None = None, **more: Any
) -> ScenarioWorld:
    """Return the world of a scenario; with a rating set everybody in it is a device unless fewer are asked for."""
    ratings: RatingSet | None = None
    if data is not None:
        ratings = on_scale(read_ratings(data))
    count = devices or (ratings.person_count if ratings is not None else Scenario().devices)
    part = cohort or max(2, min(count, -(-count // SHARE), 100))
    options: dict[str, Any] = {"devices": count, "cohort": part, **more}
    if ratings is not None:
        options |= {"data": str(data), "items": ratings.item_count}
    return world_of(Scenario(**options), ratings)


def on_scale(ratings: RatingSet) -> RatingSet:
    """Return ratings as models expect them: those from 0 to 5 as they are, others are scaled, with a note.

    Rates and bounds are made for this scale.
    """
    lowest, highest = float(ratings.values.min()), float(ratings.values.max())
    if lowest >= 0 and highest <= HIGHEST:
        return ratings
    output.note(
        f"{ratings.name} has ratings from {lowest:g} to {highest:g}; they are scaled to {LOWEST:g} to {HIGHEST:g}, "
        "and errors are on that scale"
    )
    parts = (ratings.values - lowest) / max(highest - lowest, 1e-6)
    return replace(ratings, values=(LOWEST + (HIGHEST - LOWEST) * parts).astype(ratings.values.dtype))
