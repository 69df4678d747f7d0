"""A world from what somebody types: what is not said follows from what is."""

from pathlib import Path
from typing import Any

from secemb_tools.datasets import RatingSet, read_ratings
from secemb_tools.simulation.scenario import Scenario, World

SHARE = 5  # one device in so many takes part in a round


def make_world(
    *, devices: int | None = None, cohort: int | None = None, data: Path | None = None, **more: Any
) -> World:
    """Return the world of a scenario; with a rating set everybody in it is a device unless fewer are asked for."""
    ratings: RatingSet | None = None
    if data is not None:
        ratings = read_ratings(data)
    count = devices or (ratings.person_count if ratings is not None else Scenario().devices)
    part = cohort or max(2, min(count, -(-count // SHARE), 100))
    wishes: dict[str, Any] = {"devices": count, "cohort": part, **more}
    if ratings is not None:
        wishes |= {"data": str(data), "items": ratings.item_count}
    return World(Scenario(**wishes), ratings)
