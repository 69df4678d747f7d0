"""How each model is trained on MovieLens, what it must reach, and what the paper has.

The paper gives one rate and one penalty a model. Read for each rating these overfit, and a dense part needs a rate and
a penalty of its own; the settings here were found on one split.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from secemb_sdk.models import Model, registry
from secemb_sdk.models.registry import KnownFeatures
from secemb_shared.messages import TaskSpec
from secemb_tools.datasets import RatingSet
from secemb_tools.specification import build_task

MakeModel = Callable[[int], Model]  # person → the model as this person's device has it


@dataclass(frozen=True, slots=True, kw_only=True)
class Recipe:
    """One model with its settings for one rating set."""

    model: str  # a name in the registry of models
    rounds: int
    capacity: int = 200  # m' of the paper
    cohort: int = 100
    rate: str = "0.025"  # of rows, and of the private part on the device
    dense_rate: str = "0.001"
    scale: str = "0.01"  # standard deviation of the first weights
    dimension: int | None = None  # of an item's vector; none: as the model has it by itself
    penalty: float = 0.1
    dense_penalty: float = 0.0
    fraction_bits: int = 16
    bound: int = 2**24  # steps of one element of an update; a hundred of these still fit the ring
    bar: float | None = None  # the largest RMSE that is good enough
    paper: float | None = None

    def task(self, ratings: RatingSet, *, seed: int, **changes: Any) -> TaskSpec:
        """Return the task that two servers are given, with other fields of a task where they are named."""
        model = self.models(ratings)(0)
        capacity = min(self.capacity, ratings.item_count)
        fields: dict[str, Any] = {
            "fraction_bits": self.fraction_bits,
            "bound": self.bound,
            "cohort": self.cohort,
            "rounds": self.rounds,
            "row_rate": self.rate,
            "dense_rate": self.dense_rate,
            "initial_scale": self.scale,
            "seed": seed,
        }
        return build_task(
            name=f"{self.model} on {ratings.label}",
            items=ratings.item_count,
            row_width=model.row_width,
            dense_size=model.dense_size,
            capacity=capacity,
            **fields | changes,
        )

    def models(self, ratings: RatingSet) -> MakeModel:
        """Return what makes the model of each person; torch is imported only for models that need it."""
        kind = registry.find(self.model)
        if kind.needs_torch:
            from secemb_sdk.models.torch import compute_alone

            compute_alone()
        settings: dict[str, Any] = {
            "dimension": self.dimension,
            "penalty": self.penalty,
            "dense_penalty": self.dense_penalty,
            "scale": float(self.scale),
        }
        if not kind.needs_features:
            model = kind.make(**settings)
            return lambda _: model
        users, lookup = ratings.user_features, ratings.item_features.__getitem__
        return lambda person: kind.make(**settings, features=KnownFeatures(users[person], lookup))


# The weight w_0 of a machine is in every rating: its gradient needs more room before the point than the others.
_MACHINE: dict[str, Any] = {"dense_penalty": 1.0, "fraction_bits": 14}
_LONG: dict[str, Any] = {"capacity": 300}
RECIPES = {
    "ML100K": (
        Recipe(model="mf", rounds=1400, bar=0.915, paper=0.944),
        Recipe(model="ncf", rounds=600, rate="0.005", scale="0.1", bar=0.935, paper=0.949),
        Recipe(model="fm", rounds=1400, dense_rate="0.002", bar=0.912, paper=0.937, **_MACHINE),
        Recipe(model="deepfm", rounds=500, bar=0.912, paper=0.939, **_MACHINE),
    ),
    "ML1M": (
        Recipe(model="mf", rounds=3400, penalty=0.08, paper=0.903, **_LONG),
        Recipe(model="ncf", rounds=1708, rate="0.005", scale="0.1", penalty=0.05, paper=0.897, **_LONG),
        Recipe(model="fm", rounds=1464, dense_rate="0.002", paper=0.906, **_MACHINE, **_LONG),
        Recipe(model="deepfm", rounds=854, paper=0.902, **_MACHINE, **_LONG),
    ),
}
REPORTED = tuple(recipe.model for recipe in RECIPES["ML100K"])  # the models of published figures
SHORT_BARS = {("ML100K", "mf"): (100, 0.944)}  # rounds, and the RMSE that a quick run must have reached after them


def recipe_for(model: str, ratings: str, rounds: int | None = None) -> Recipe:
    """Return the recipe of a model, for another number of rounds if one is given; a bar counts from its rounds on."""
    recipe = {one.model: one for one in RECIPES[ratings]}[model]
    if rounds is None or rounds >= recipe.rounds:
        return replace(recipe, rounds=rounds or recipe.rounds)
    after, bar = SHORT_BARS.get((ratings, model), (recipe.rounds, None))
    return replace(recipe, rounds=rounds, bar=bar if rounds >= after else None)
