"""A survey of the fleet before a task exists: where its ratings lie."""

import math
from dataclasses import dataclass

import numpy as np

from secemb_shared.messages.spec import SQUARED, SURVEY
from secemb_shared.randomness import Indices
from secemb_tools.datasets import RatingSet
from secemb_tools.simulation.engine import Engine
from secemb_tools.simulation.recipes import Recipe
from secemb_tools.simulation.rounds import PRIVATE
from secemb_tools.simulation.world import World

_MOST = 1000  # devices: enough for a mean
_SURVEYED = 24  # what a seed is used for


@dataclass(frozen=True, slots=True, kw_only=True)
class Surveyed:
    """One round of people who are drawn."""

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
    spread = found.get("rating_spread", 0.0) or recipe.spread  # all ratings are alike: any will do
    digits = max(0, 2 - math.floor(math.log10(spread)))  # as exact as such a survey is
    return recipe.changed(centre=round(found.get("mean_rating", recipe.centre), digits), spread=round(spread, digits))
