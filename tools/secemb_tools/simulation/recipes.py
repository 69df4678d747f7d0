"""Recipes for training a model: all settings, and the rule for those not given.

The rule looks only at public facts: how many people, items and ratings there are. It was found on MovieLens-100K and
-1M, on samples of both, and on Gowalla (`make quality`), not for each set; for events on MovieLens-1M, and confirmed on
Amazon's video games.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from numbers import Integral, Real
from typing import Any, Self

from secemb_sdk.models import Model, registry
from secemb_sdk.models.interface import follows
from secemb_sdk.models.registry import KnownFeatures
from secemb_sdk.models.ridge import Penalties
from secemb_shared.catalogue import digest_of
from secemb_shared.messages import TaskSpec
from secemb_shared.messages.privacy import USER
from secemb_shared.messages.spec import BPR, NEXT, SQUARED
from secemb_shared.row_words import SINGLE
from secemb_tools.datasets import RatingSet
from secemb_tools.datasets.summary import suggest_capacity
from secemb_tools.errors import ScenarioError
from secemb_tools.specification import (
    GUARD,
    RING_BITS,
    SESSIONS,
    Density,
    as_decimal,
    build_task,
    decay_of,
    default_bias_rate,
    default_pulls,
    default_rounds,
    fraction_bits_of,
)

MakeModel = Callable[[int], Model]  # person → the model on this person's device

_NEARLY_ALL, _CHEAP = 0.99, 300  # share of the interactions, and an m' that is cheap for a device
_SIGNED = ("centre", "lowest", "highest")  # may be negative
_BOUND = 2**24  # steps of one element of an update
# Settings of models whose dense part needs different ones than matrix factorisation. The weight w₀ of a machine is in
# every rating, so its gradient needs more integer bits.
_MODELS: dict[str, dict[str, Any]] = {
    "ncf": {"scale": 0.1, "dense_rate": 0.005},
    "fm": {"dense_rate": 0.005, "dense_penalty": 1.0},
    "deepfm": {"dense_rate": 0.003, "dense_penalty": 1.0},
}
_FEWER_FRACTION_BITS = {"fm": 2, "deepfm": 2}
# Settings of models that learn from events: the model itself sets the norm of its vectors. What matters is the number
# of rounds, whatever the fleet: on Amazon's video games (31,013 people) a cohort of 516 gained nothing over one of 100.
_RATE = 0.008
_EVENTS: dict[str, Any] = {"dimension": None, "rounds": 600, "rate": _RATE, "bias_rate": _RATE, "dense_rate": _RATE}
_EVENT_COHORT = 100
# A session of texts learns from 256 words: a third of the rounds is enough.
_TEXTS: dict[str, Any] = {"rounds": 200, "dense_rate": 0.005, "scale": 0.08}
# Noise on the whole update of a user grows with rounds and row width: few rounds, biases only, and no Adam,
# which makes noise as large as the signal. Only matrix factorisation still works without its vectors.
_NOISY_USER: dict[str, Any] = {"optimiser": "momentum", "bias_rate": 0.3, "dimension": 0, "rounds": 50}


@dataclass(frozen=True, slots=True, kw_only=True)
class Recipe:
    """One model with all settings of its training."""

    model: str = "mf"  # a name in the registry of models
    loss: str = SQUARED
    rounds: int
    cohort: int = 100
    capacity: int = 200  # m' of the paper
    dimension: int | None = None  # of an item's vector; None: the model's default
    optimiser: str = "adam"
    guard: float = GUARD  # no row's mean gradient is longer than this multiple of its usual norm
    schedule: str = "cosine"
    rate: float = 0.02  # of the vectors in rows, and of a private part that is not solved
    bias_rate: float = 0.05  # of the biases in rows
    dense_rate: float = 0.001
    scale: float = 0.05  # standard deviation of the initial weights
    penalty: float = Penalties.rating
    person_penalty: float = Penalties.person
    bias_penalty: float = Penalties.bias
    dense_penalty: float = 0.0
    row_pull: float = 0.0  # penalty of an item's vector that counts once, in ratings of the whole fleet
    bias_pull: float = 0.0  # the same of an item's bias
    centre: float = 0.0  # of the ratings: models see (rating − centre) / spread
    spread: float = 1.0
    lowest: float | None = None  # the ends of the scale, which predictions are clipped to; None: unknown
    highest: float | None = None
    ring_bits: int = RING_BITS
    fraction_bits: int = 16
    row_bits: int = SINGLE  # of a number in a row that devices read
    bound: int = _BOUND
    epochs: int = 1  # steps of a private part that is not solved, in each round

    @classmethod
    def by_rule(cls, ratings: RatingSet, *, model: str = "mf", unit: str | None = None, **settings: Any) -> Self:
        """Return the settings for a rating set; given ones that are not None are kept, the others follow from the set.

        `unit` is that of the privacy budget, if there is one.
        """
        given = {name: value for name, value in settings.items() if value is not None}
        known = {field.name: field.type for field in fields(cls)}
        if unknown := given.keys() - known:
            raise ScenarioError(f"unknown setting {min(unknown)!r}")
        given = {name: _read(name, known[name], value) for name, value in given.items()}
        events = registry.find(model).has_events
        loss = given.setdefault("loss", NEXT if events else BPR if ratings.implicit else SQUARED)
        if (loss == NEXT) != events:
            raise ScenarioError(f"the loss {loss} does not fit the model {model}; omit --loss to use the model's own")
        people = ratings.person_count
        ranks = loss != SQUARED
        cohort = given.get("cohort") or min(default_cohort(people), _EVENT_COHORT if events else people)
        count = ratings.values.size
        density = None if ranks else Density.of(ratings=count, people=people, items=ratings.item_count)
        kept, (row_pull, bias_pull) = default_capacity(ratings), default_pulls(loss, density)
        capacity = min(ratings.item_count, max(4, 2 * kept if ranks else kept))
        ring_bits = given.get("ring_bits", RING_BITS)
        fraction_bits = fraction_bits_of(ring_bits, capacity=given.get("capacity", capacity))
        rule: dict[str, Any] = {
            "loss": loss,
            "lowest": None if ranks else float(ratings.values.min()),
            "highest": None if ranks else float(ratings.values.max()),
            "cohort": cohort,
            "rounds": default_rounds(people, cohort, density),
            "capacity": capacity,
            "dimension": 32 if ranks else 16,
            "row_pull": round(row_pull, 1),
            "bias_pull": bias_pull,
            "bias_rate": default_bias_rate(loss),
            "fraction_bits": fraction_bits - _FEWER_FRACTION_BITS.get(model, 0),
            "bound": min(_BOUND, (2 ** (ring_bits - 1) - 1) // cohort),
            **_MODELS.get(model, {}),
        }
        if events:
            rule |= _EVENTS | (_TEXTS if registry.find(model).has_texts else {})
            rule["capacity"] = min(ratings.item_count, _room(registry.find(model).make()))
        if unit == USER and model == "mf":
            rule |= _NOISY_USER
        return cls(model=model, **{**rule, **given, "cohort": cohort})

    def changed(self, **settings: Any) -> Self:
        """Return the same recipe with other settings."""
        return replace(self, **settings)

    def task(self, ratings: RatingSet, *, seed: int, **changes: Any) -> TaskSpec:
        """Return the task for two servers, with any other given fields of a task."""
        model = self.models(ratings)(0)
        fields: dict[str, Any] = {
            "loss": self.loss,
            "ring_bits": self.ring_bits,
            "fraction_bits": self.fraction_bits,
            "row_bits": self.row_bits,
            "bound": self.bound,
            "cohort": self.cohort,
            "rounds": self.rounds,
            "optimiser": self.optimiser,
            "guard": as_decimal(self.guard),
            "schedule": self.schedule,
            "row_rate": as_decimal(self.rate),
            "bias_rate": as_decimal(self.bias_rate),
            "dense_rate": as_decimal(self.dense_rate),
            "row_decay": as_decimal(decay_of(self.row_pull, ratings.person_count)),
            "bias_decay": as_decimal(decay_of(self.bias_pull, ratings.person_count)),
            "initial_scale": as_decimal(self.scale),
            "centre": as_decimal(self.centre),
            "spread": as_decimal(self.spread),
            "lowest": "" if self.lowest is None else as_decimal(self.lowest),
            "highest": "" if self.highest is None else as_decimal(self.highest),
            "seed": seed,
        }
        return build_task(
            name=f"{self.model} on {ratings.label}",
            items=ratings.item_count,
            row_width=model.row_width,
            dense_size=model.dense_size,
            capacity=min(self.capacity, ratings.item_count),
            **fields | self._vocabulary(ratings) | changes,
        )

    def _vocabulary(self, ratings: RatingSet) -> dict[str, str]:
        """Return the digest of the words if there are texts: without them no device could read its own."""
        return {"catalogue": digest_of(ratings.catalogue.encode())} if registry.find(self.model).has_texts else {}

    def models(self, ratings: RatingSet) -> MakeModel:
        """Return the factory for each person's model; torch is imported only for models that need it."""
        kind = registry.find(self.model)
        if kind.needs_torch:
            from secemb_sdk.models.torch import compute_alone

            compute_alone()
        settings: dict[str, Any] = {
            "dimension": self.dimension,
            "loss": self.loss,
            "penalty": self.penalty,
            "person_penalty": self.person_penalty,
            "bias_penalty": self.bias_penalty,
            "dense_penalty": self.dense_penalty,
            "scale": self.scale,
        }
        if not kind.needs_features:
            model = kind.make(**settings)
            return lambda _: model
        users, lookup = ratings.user_features, ratings.item_features.__getitem__
        return lambda person: kind.make(**settings, features=KnownFeatures(users[person], lookup))


def whole(name: str, value: Any) -> int:
    """Return an integer, or raise an error that names the setting."""
    if isinstance(value, bool) or not isinstance(value, Integral):
        raise ScenarioError(f"{name} must be a whole number, such as {name}=20, not {value!r}")
    return int(value)


def number(name: str, value: Any, *, signed: bool = False) -> float:
    """Return a number as a float, or raise an error that names the setting; only signed ones may be negative."""
    if isinstance(value, bool) or not isinstance(value, Real) or not math.isfinite(value):
        raise ScenarioError(f"{name} must be a number, such as {name}=0.05, not {value!r}")
    if value < 0 and not signed:
        raise ScenarioError(f"{name} must be 0 or more, not {value!r}")
    return float(value)


def _read(name: str, kind: Any, value: Any) -> Any:
    """Return a setting in the type of its field."""
    if kind in (int, int | None):
        return whole(name, value)
    if kind in (float, float | None):
        return number(name, value, signed=name in _SIGNED)
    if not isinstance(value, str):
        raise ScenarioError(f"{name} must be text, not {value!r}")
    return value


def default_capacity(ratings: RatingSet) -> int:
    """Return m' such that a round keeps nine tenths of its interactions, or nearly all of them if that is cheap."""
    return max(suggest_capacity(ratings), min(suggest_capacity(ratings, _NEARLY_ALL), _CHEAP))


def default_cohort(people: int) -> int:
    """Return how many devices a round has: a fifth of a small fleet, a hundred, or a sixtieth of a large one."""
    return max(2, min(people, max(min(-(-people // SESSIONS), 100), people // 60)))


def _room(model: Model) -> int:
    """Return m' for a model of events."""
    return model.room if follows(model) else 0
