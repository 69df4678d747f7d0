"""The settings of a simulation, and the world that follows from them. A survey finds the scale of the ratings."""

import hashlib
import math
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any, Self

import numpy as np
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from secemb_sdk.models import registry
from secemb_shared.messages.measures import PATIENCE
from secemb_shared.messages.spec import SQUARED, SURVEY
from secemb_shared.randomness import Indices
from secemb_tools import output
from secemb_tools.datasets import RatingSet, read_ratings
from secemb_tools.datasets.junk import SHARE
from secemb_tools.datasets.made_up import make_events, make_ratings
from secemb_tools.errors import ScenarioError
from secemb_tools.simulation.engine import Engine
from secemb_tools.simulation.noise import NoiseOptions, calmed, noisy_fields, terms_of
from secemb_tools.simulation.recipes import Recipe, whole
from secemb_tools.simulation.rounds import PRIVATE
from secemb_tools.simulation.world import InTurn, Sampled, World

MADE_UP = "made-up"
HOLD_OUT = 0.1  # share of a person's ratings for evaluation, never trained on
_MADE_UP_MOST = 100  # ratings of a synthetic person
_MOST = 1000  # devices: enough for a mean
_SURVEYED = 24  # purpose of a derived seed


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """The settings of a simulation, without open ones."""

    data: str = MADE_UP  # or the path of a rating set
    devices: int = 200
    items: int = 400
    evaluate_every: int = 6  # the interval of evaluation rounds, which do not count as rounds of the recipe
    patience: int = PATIENCE  # evaluations without improvement after which training stops; 0: never
    seed: int = 1
    recipe: Recipe
    noise: NoiseOptions | None = None

    def __post_init__(self) -> None:
        registry.find(self.recipe.model)
        if self.devices < 2:
            raise ScenarioError(f"{self.data} has ratings of only one person; training needs at least two people")
        if not 2 <= self.recipe.cohort <= self.devices:
            raise ScenarioError("the cohort must be at least 2 and at most the number of devices")
        if self.recipe.rounds < 1 or self.recipe.capacity < 4 or (self.recipe.dimension or 0) < 0:
            raise ScenarioError("rounds must be at least 1, capacity at least 4 and dimension at least 0")
        if self.evaluate_every < 2 or self.seed < 0 or self.patience < 0:
            raise ScenarioError("evaluate_every must be at least 2, and seed and patience at least 0")

    @property
    def model(self) -> str:
        """Return the model's name."""
        return self.recipe.model

    @property
    def rounds(self) -> int:
        """Return how many rounds train."""
        return self.recipe.rounds

    @property
    def all_rounds(self) -> int:
        """Return how many rounds there are with evaluations, unless training stops early; noise allows none."""
        return self.rounds + (self.rounds // (self.evaluate_every - 1) if self.noise is None else 0)

    @property
    def cohort(self) -> int:
        """Return how many devices a round has."""
        return self.recipe.cohort

    def as_json(self) -> dict[str, Any]:
        """Return all settings as plain data, in one group except the noise."""
        found = asdict(self)
        return {**found.pop("recipe"), **found}

    @classmethod
    def read(cls, found: dict[str, Any]) -> Self:
        """Read `as_json`."""
        own = {field.name for field in fields(cls)} - {"recipe", "noise"}
        noise = found["noise"]
        recipe = {name: value for name, value in found.items() if name not in own | {"noise"}}
        return cls(
            **{name: found[name] for name in own},
            recipe=Recipe(**recipe),
            noise=None if noise is None else NoiseOptions(**noise),
        )

    @property
    def digest(self) -> str:
        """Return eight digits that identify this combination."""
        return hashlib.sha256(repr(sorted(self.as_json().items())).encode()).hexdigest()[:8]


@dataclass(frozen=True, kw_only=True, repr=False, eq=False)
class ScenarioWorld(World):
    """The world of a scenario; the same scenario has the same world everywhere."""

    scenario: Scenario

    @property
    def relay_identity(self) -> Ed25519PrivateKey:
        """Return server 1's identity. The task contains it, so it follows from the seed: for this machine only."""
        return _relay_identity(self.seed)


def make_world(
    *,
    model: str = "mf",
    data: Path | RatingSet | None = None,
    devices: int | None = None,
    items: int = 400,
    seed: int = 1,
    evaluate_every: int = 6,
    patience: int = PATIENCE,
    noise: NoiseOptions | None = None,
    **settings: Any,
) -> ScenarioWorld:
    """Return the world of a scenario. Missing `settings`, which are fields of a recipe, follow a rule.

    With a rating set everybody in it is a device unless fewer are requested.
    """
    counts = {"items": items, "seed": seed, "evaluate_every": evaluate_every, "patience": patience, "devices": devices}
    for name, value in counts.items():
        if name != "devices" or value is not None:
            whole(name, value)
    ratings = _ratings(data, model, devices, items, seed)
    if devices is not None:
        ratings = _fewer(ratings, devices)
    recipe = Recipe.by_rule(ratings, model=model, unit=None if noise is None else noise.unit, **settings)
    if noise is not None and settings.get("bias_rate") is None:
        terms = terms_of(noise, Sampled(people=ratings.person_count, cohort=recipe.cohort, seed=seed), recipe.rounds)
        recipe = recipe if terms is None else calmed(recipe, noise, multiplier=terms.multiplier)
    scenario = Scenario(
        data=MADE_UP if data is None else ratings.name if isinstance(data, RatingSet) else str(data),
        devices=ratings.person_count,
        items=ratings.item_count,
        evaluate_every=evaluate_every,
        patience=patience,
        seed=seed,
        recipe=recipe,
        noise=noise,
    )
    if settings.get("centre") is None or settings.get("spread") is None:
        surveyed = with_scale(recipe, ratings, seed=seed)
        given = {name: settings[name] for name in ("centre", "spread") if settings.get(name) is not None}
        scenario = replace(scenario, recipe=surveyed.changed(**given))
    return world_of(scenario, ratings)


def world_of(scenario: Scenario, ratings: RatingSet | None = None) -> ScenarioWorld:
    """Return the world of a scenario; ratings are generated if none are given."""
    recipe, seed, cohort = scenario.recipe, scenario.seed, scenario.cohort
    if ratings is None:
        ratings = _ratings(None, scenario.model, scenario.devices, scenario.items, seed)
    schedule: InTurn | Sampled = InTurn(
        people=scenario.devices, cohort=cohort, smallest=cohort, seed=seed, evaluate_every=scenario.evaluate_every
    )
    changes: dict[str, Any] = {"min_cohort": cohort}  # a round waits for everybody, so that timing never matters
    if scenario.noise is not None:
        schedule = Sampled(people=scenario.devices, cohort=cohort, seed=seed)
        changes = noisy_fields(recipe, schedule, scenario.noise)
    task = recipe.task(
        ratings,
        seed=seed,
        join_seconds=300,
        upload_seconds=600,
        relay_key=_relay_identity(seed).public_key().public_bytes_raw().hex(),
        **changes,
    )
    return ScenarioWorld(
        ratings=ratings,
        recipe=recipe,
        task=task,
        schedule=schedule,
        seed=seed,
        epochs=recipe.epochs,
        hold_out=HOLD_OUT,
        scenario=scenario,
    )


def _ratings(data: Path | RatingSet | None, model: str, devices: int | None, items: int, seed: int) -> RatingSet:
    if data is None:
        kind, people = registry.find(model), devices or 200
        if kind.has_texts:
            from secemb_tools.datasets.made_up_texts import make_texts  # imported here because polars is slow to import

            return make_texts(people=people, words=items, seed=seed)
        make = make_events if kind.has_events else make_ratings
        return make(people=people, items=items, most=_MADE_UP_MOST, seed=seed)
    ratings = data if isinstance(data, RatingSet) else read_data(data, model=model, seed=seed)
    return ratings.only(np.arange(ratings.values.size))  # sorted by person


def read_data(
    source: Any,
    *,
    model: str,
    seed: int,
    least: int | None = None,
    columns: str | None = None,
    catalogue: Path | None = None,
    junk_share: float = SHARE,
) -> RatingSet:
    """Return the ratings at this path, or the texts if the model learns from texts."""
    if not registry.find(model).has_texts:
        return read_ratings(source, columns=columns, catalogue=catalogue, junk_share=junk_share)
    from secemb_tools.datasets.texts import read_texts

    texts = read_texts(Path(source), seed=seed, least=least, columns=columns, junk_share=junk_share)
    for sentence in texts.report.sentences():
        output.note(f"{texts.name}: {sentence}")
    return texts


def _relay_identity(seed: int) -> Ed25519PrivateKey:
    name = f"secemb simulation {seed} server 1"
    return Ed25519PrivateKey.from_private_bytes(hashlib.sha256(name.encode()).digest())


def _fewer(ratings: RatingSet, devices: int) -> RatingSet:
    """Return the ratings of the first people."""
    if ratings.person_count < devices:
        raise ScenarioError(f"{ratings.name} has {ratings.person_count:,} people; ask for at most that many devices")
    kept = ratings.only(np.flatnonzero(ratings.people < devices))
    return replace(kept, user_features=kept.user_features[:devices], user_ids=kept.user_ids[:devices])


@dataclass(frozen=True, slots=True, kw_only=True)
class Surveyed:
    """One survey round of people drawn at random."""

    people: int
    seed: int

    def kind_of(self, number: int) -> str:
        """Return that every round is a survey."""
        return SURVEY

    def people_of(self, number: int) -> Indices:
        """Return who takes part."""
        return np.random.default_rng([self.seed, _SURVEYED, number]).permutation(self.people)[:_MOST]


def with_scale(recipe: Recipe, ratings: RatingSet, *, seed: int) -> Recipe:
    """Return the recipe with the mean of the ratings and their standard deviation; no server learns any of them."""
    if recipe.loss != SQUARED:
        return recipe
    schedule = Surveyed(people=ratings.person_count, seed=seed)
    sessions = schedule.people_of(0).size
    lowest, highest = recipe.lowest, recipe.highest
    if lowest is not None and highest is not None:  # a first guess, so that no number of the survey is large
        recipe = recipe.changed(centre=(lowest + highest) / 2, spread=(highest - lowest) / 2)
    world = World(
        ratings=ratings,
        recipe=recipe,
        task=recipe.task(ratings, seed=seed, cohort=sessions, min_cohort=sessions, bound=1),
        schedule=schedule,
        seed=seed,
    )
    found = Engine(world, way=PRIVATE).step().figures
    spread = found.get("rating_spread", 0.0) or recipe.spread  # all ratings are equal, so any value works
    digits = max(0, 2 - math.floor(math.log10(spread)))  # the precision of such a survey
    return recipe.changed(centre=round(found.get("mean_rating", recipe.centre), digits), spread=round(spread, digits))
