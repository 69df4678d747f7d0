"""A world from what somebody types: what is not said follows from what is."""

from dataclasses import replace
from pathlib import Path
from typing import Any

from secemb_tools.datasets import RatingSet, read_ratings
from secemb_tools.operate import answer
from secemb_tools.simulation.scenario import Scenario, World

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
    answer.note(
        f"{ratings.name} has ratings from {lowest:g} to {highest:g}: they are stretched to {LOWEST:g} to {HIGHEST:g}, "
        "and errors are measured on that scale"
    )
    parts = (ratings.values - lowest) / max(highest - lowest, 1e-6)
    return replace(ratings, values=(LOWEST + (HIGHEST - LOWEST) * parts).astype(ratings.values.dtype))
