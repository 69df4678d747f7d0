"""One person of a demonstration: their ratings, and their device's recommendations."""

from collections.abc import Iterable
from dataclasses import dataclass

from secemb_tools.local.fleet import Fleet
from secemb_tools.simulation.world import World

SHOWN = 5  # items in each list


@dataclass(frozen=True, slots=True, kw_only=True)
class Suggestion:
    """An item with its title, and the given or predicted rating."""

    item: str  # its external id
    title: str | None
    genre: str | None
    rating: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Person:
    """The items that a person rated highest, and those that the device recommends."""

    number: int
    ratings: int  # given by the person
    liked: list[Suggestion]
    recommended: list[Suggestion]


async def person_of(world: World, fleet: Fleet, number: int) -> Person:
    """Let a person's device recommend, as in an app: it copies the public table and ranks it locally."""
    own = world.ratings_of(number)
    best = sorted(own.items(), key=lambda one: (-one[1], one[0]))[:SHOWN]
    found = await fleet.recommend(number, SHOWN)
    return Person(
        number=number,
        ratings=len(own),
        liked=_suggestions(world, best),
        recommended=_suggestions(world, found.items()),
    )


def _suggestions(world: World, found: Iterable[tuple[int, float]]) -> list[Suggestion]:
    catalogue = world.ratings.catalogue
    genres = catalogue.others.get("genre", catalogue.others.get("genres", ()))
    return [
        Suggestion(
            item=catalogue.id_of(item),
            title=catalogue.title_of(item),
            genre=(genres[item] or None) if genres else None,
            rating=round(float(rating), 3),
        )
        for item, rating in found
    ]
