"""Synthetic ratings and events: hidden tastes, a long tail, titles and noise. For demonstrations without a download."""

from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from secemb_shared.catalogue import Catalogue
from secemb_shared.randomness import Indices
from secemb_tools.datasets.ratings import RatingSet

Doubles = npt.NDArray[np.float64]
TASTES = 3  # hidden factors of a person and of an item
FEWEST = 8  # ratings of a person
TAIL = 1.0  # an item's popularity falls with this power of its rank
NOISE = 0.4
KEENNESS = 1.2  # how much more often people rate what they like
MIDDLE = 2.8
FAITHFUL = 0.7  # of choices in time order: the share that is the sequel of the previous one
NAME = "made up"
GENRES = (("Comedy", "Tragedy"), ("Mystery", "Romance"), ("Adventure", "Essay"))  # genres of each taste, by its sign
_QUALITIES = (
    "Amber Ancient Blue Borrowed Bright Broken Burning Crooked Distant Double Dusty Electric Empty Endless Faithful "
    "Fallen Final Frozen Gentle Gilded Golden Hidden Hollow Honest Hungry Idle Invisible Iron Jealous Last Little "
    "Lonely Lost Lucky Marble Midnight Missing Modest Narrow Nameless Northern Odd Open Paper Patient Perfect "
    "Plain Quiet Rusty Sacred Salt Second Secret Silent Silver Sleeping Stolen Stubborn Tin Velvet Wandering Western "
    "Wild Wooden"
)
_THINGS = (
    "Alphabet Anchor Answer Apple Archive Balcony Bell Bicycle Bridge Calendar Candle Canyon Carnival Cartographer "
    "Castle Choir Clock Compass Corridor Country Dancer Detective Doctor Engine Envelope Feather Ferry Forest Garden "
    "Ghost Harbour Harvest Hotel Island Journey Kitchen Ladder Lake Lantern Letter Library Lighthouse Locksmith Map "
    "Meadow Mirror Mountain Museum Needle Orchard Orchestra Painter Passenger Piano Promise Railway River Shadow Ship "
    "Station Summer Tailor Theatre Window"
)
_FIRST, _SECOND = _QUALITIES.split(), _THINGS.split()
_PAIRS = len(_FIRST) * len(_SECOND)
_STRIDE = 29  # step between the words of neighbouring items, so that consecutive titles do not look alphabetical


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Tastes:
    """The hidden properties of people and items from which ratings are drawn."""

    likes: Doubles  # (people, tastes)
    kinds: Doubles  # (items, tastes)
    by_person: Doubles  # (people,)
    by_item: Doubles  # (items,)

    def rate(self, rng: np.random.Generator, who: Indices, what: Indices, *, middle: float, noise: float) -> RatingSet:
        """Return the ratings from 1 to 5 that these people give these items."""
        exact = middle + self.by_person[who] + self.by_item[what] + (self.likes[who] * self.kinds[what]).sum(axis=1)
        values = np.clip(np.rint(exact + rng.normal(0, noise, who.size)), 1, 5)
        return RatingSet(
            name=NAME,
            people=who,
            items=what,
            values=values.astype(np.float32),
            user_features=(self.likes > 0).astype(np.uint8),
            item_features=(self.kinds > 0).astype(np.uint8),
        )


def make_ratings(*, people: int, items: int, most: int, seed: int) -> RatingSet:
    """Return ratings from 1 to 5: most people rate few items, some rate many, at most `most`."""
    rng = np.random.default_rng([seed, 0xCA7A])
    hidden = Tastes(
        likes=rng.normal(0, 0.35, (people, TASTES)),
        kinds=rng.normal(0, 1, (items, TASTES)),
        by_person=rng.normal(0, 0.45, people),
        by_item=rng.normal(0, 0.8, items),
    )
    who, what = _who_rates_what(rng, hidden, most)
    return replace(hidden.rate(rng, who, what, middle=MIDDLE, noise=NOISE), catalogue=_catalogue(hidden.kinds))


def make_events(*, people: int, items: int, most: int, seed: int) -> RatingSet:
    """Return choices in time order: mostly the sequel of the last one, otherwise a popular item.

    Each item has one sequel, so that the last choice says more about the next than popularity does.
    """
    rng = np.random.default_rng([seed, 0x5E9])
    counts = rng.integers(FEWEST, most + 1, people)
    who, sequels = np.repeat(np.arange(people), counts), rng.permutation(items)
    known = 1 / np.arange(10, items + 10) ** TAIL
    what = rng.choice(items, who.size, p=known / known.sum()).astype(np.int64)
    goes_on = (rng.random(who.size) < FAITHFUL) & (np.append(-1, who[:-1]) == who)
    for place in np.flatnonzero(goes_on).tolist():
        what[place] = sequels[what[place - 1]]
    return RatingSet(
        name=NAME,
        people=who,
        items=what,
        values=np.ones(who.size, np.float32),
        user_features=np.zeros((people, 0), np.uint8),
        item_features=np.zeros((items, 0), np.uint8),
        order=np.arange(who.size),
        implicit=True,
        catalogue=Catalogue(ids=tuple(map(str, range(items))), titles=tuple(map(make_title, range(items)))),
    )


def _catalogue(kinds: Doubles) -> Catalogue:
    """Return a title and a genre for each item; the genre follows from the item's strongest hidden number."""
    strongest = np.abs(kinds).argmax(axis=1)
    signs = np.take_along_axis(kinds, strongest[:, None], axis=1)[:, 0] < 0
    return Catalogue(
        ids=tuple(map(str, range(len(kinds)))),
        titles=tuple(map(make_title, range(len(kinds)))),
        others={"genre": tuple(GENRES[one][sign] for one, sign in zip(strongest, signs.astype(int), strict=True))},
    )


def _who_rates_what(rng: np.random.Generator, hidden: Tastes, most: int) -> tuple[Indices, Indices]:
    """Return distinct pairs: people choose popular items, and items that they expect to like."""
    people, items = hidden.by_person.size, hidden.by_item.size
    most = min(most, items)
    counts = np.clip(np.rint(rng.lognormal(np.log(most / 2), 0.6, people)), min(FEWEST, most), most).astype(np.int64)
    known = rng.permutation(1 / np.arange(10, items + 10) ** TAIL)
    # One person at a time: the expectations of all people for all items would not fit into memory.
    expected = (hidden.by_item + hidden.kinds @ likes for likes in hidden.likes)
    what = [_choose(rng, known * np.exp(KEENNESS * own), count) for own, count in zip(expected, counts, strict=True)]
    return np.repeat(np.arange(people), counts), np.concatenate(what)


def _choose(rng: np.random.Generator, weights: Doubles, count: int) -> Indices:
    return rng.choice(weights.size, count, replace=False, p=weights / weights.sum()).astype(np.int64)


def make_title(item: int) -> str:
    """Return a unique title; after all pairs of words have been used, a number is appended."""
    edition, pair = divmod(item, _PAIRS)
    turn, first = divmod(pair, len(_FIRST))
    name = f"The {_FIRST[first]} {_SECOND[(turn + _STRIDE * first) % len(_SECOND)]}"
    return name if edition == 0 else f"{name} {edition + 1}"
