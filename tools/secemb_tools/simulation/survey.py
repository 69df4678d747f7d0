"""A survey of the fleet before a task exists: what its items' biases begin at."""

from dataclasses import dataclass

import numpy as np

from secemb_shared.messages.spec import SQUARED, SURVEY
from secemb_shared.randomness import Indices
from secemb_tools.datasets import RatingSet
from secemb_tools.simulation.engine import Engine
from secemb_tools.simulation.recipes import Recipe
from secemb_tools.simulation.rounds import PRIVATE
from secemb_tools.simulation.world import World

_MOST = 500  # devices: enough for a mean
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


def with_centre(recipe: Recipe, ratings: RatingSet, *, seed: int) -> Recipe:
    """Return the recipe with the mean of people's mean ratings as its centre; neither server learns any of them."""
    if recipe.loss != SQUARED:
        return recipe
    schedule = Surveyed(people=ratings.person_count, seed=seed)
    sessions = schedule.people_of(0).size
    world = World(
        ratings=ratings,
        recipe=recipe,
        task=recipe.task(ratings, seed=seed, cohort=sessions, min_cohort=sessions, bound=1),
        schedule=schedule,
        seed=seed,
    )
    return recipe.changed(centre=round(Engine(world, way=PRIVATE).step().figures.get("mean_rating", 0.0), 2))
