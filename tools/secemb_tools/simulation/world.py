"""The world of a run: people and their ratings, the model, the task, and the schedule, all from one seed."""

import hashlib
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Protocol

import numpy as np

from secemb_sdk.home.records import Events
from secemb_sdk.models import Model
from secemb_sdk.round.session import SeededBytes
from secemb_sdk.words import END, UNKNOWN
from secemb_shared.messages import TaskSpec
from secemb_shared.messages.spec import EVALUATE, TRAIN
from secemb_shared.randomness import Indices, RandomBytes
from secemb_tools.datasets import RatingSet
from secemb_tools.simulation.recipes import MakeModel, Recipe
from secemb_tools.simulation.reproducible import reproducible

_NO_WORD = "\ufffd"  # a word outside the vocabulary
_SAMPLE, _EPOCH, _PANEL = 4, 21, 22  # purposes of derived seeds


class Schedule(Protocol):
    """The participants and the kind of each round."""

    def kind_of(self, number: int) -> str:
        """Return the kind of a round by its number, from zero."""

    def people_of(self, number: int) -> Indices:
        """Return the participants of a round."""


@dataclass(frozen=True, slots=True, kw_only=True)
class InTurn:
    """Everybody trains once in an epoch of rounds; the order of an epoch is drawn.

    The last round of an epoch has the remaining people. If they are fewer than a round needs, they wait for the next
    epoch. With `evaluate_every` every round whose number is a multiple of it is an evaluation. Everybody evaluates
    once in an epoch of those, in a separate order, so that consecutive evaluations measure with different people.
    """

    people: int
    cohort: int
    smallest: int  # a round with fewer people is left out
    seed: int
    evaluate_every: int | None = None

    def kind_of(self, number: int) -> str:
        """Return the kind of a round, as server 0 decides it from its settings."""
        return EVALUATE if self.evaluate_every and (number + 1) % self.evaluate_every == 0 else TRAIN

    def people_of(self, number: int) -> Indices:
        """Return who takes part in a round."""
        evaluated = number // self.evaluate_every if self.evaluate_every else 0
        if self.kind_of(number) == EVALUATE:
            return self._next(_PANEL, evaluated)
        return self._next(_EPOCH, number - evaluated)

    def _next(self, use: int, earlier: int) -> Indices:
        """Return the participants after this many rounds of the same kind."""
        starts = range(0, self.people - self.smallest + 1, self.cohort)
        epoch, place = divmod(earlier, len(starts))
        order = np.random.default_rng([self.seed, use, epoch]).permutation(self.people)
        return order[starts[place] : starts[place] + self.cohort]


@dataclass(frozen=True, slots=True, kw_only=True)
class Sampled:
    """Poisson sampling: each person takes part in a round independently with the same probability."""

    people: int
    cohort: int  # on average
    seed: int

    def kind_of(self, number: int) -> str:
        """Return that every round trains."""
        return TRAIN

    def people_of(self, number: int) -> Indices:
        """Return the participants of a round; a draw of fewer than two is repeated."""
        random = np.random.default_rng([self.seed, _SAMPLE, number])
        found = np.empty(0, dtype=np.int64)
        while found.size < 2:
            found = np.flatnonzero(random.random(self.people) < self.rate)
        return found

    @property
    def rate(self) -> float:
        """Return the probability."""
        return min(1.0, self.cohort / self.people)

    def most_rounds_of_one(self, rounds: int) -> int:
        """Return the maximum number of the first rounds in which any person takes part."""
        everybody = [self.people_of(number) for number in range(rounds)]
        return int(np.bincount(np.concatenate(everybody)).max())

    def largest_cohort(self, rounds: int) -> int:
        """Return the size of the largest of the first rounds."""
        return max(self.people_of(number).size for number in range(rounds))


class _NamedBytes:
    """Bytes derived from a name. Most devices draw none in most rounds, so the stream is created on first use."""

    __slots__ = ("_name", "_stream")

    def __init__(self, name: str) -> None:
        self._name = name
        self._stream: SeededBytes | None = None

    def __call__(self, count: int) -> bytes:
        if self._stream is None:
            self._stream = SeededBytes(hashlib.sha256(self._name.encode()).digest())
        return self._stream(count)


@dataclass(frozen=True, kw_only=True, repr=False, eq=False)
class World:
    """Everything that determines a run, except how updates are summed. It can be sent to another process."""

    ratings: RatingSet  # the data of devices
    recipe: Recipe
    task: TaskSpec
    schedule: Schedule
    seed: int
    epochs: int = 1
    hold_out: float = 0.0  # the fraction of a person's ratings that the device reserves for evaluation

    def __getstate__(self) -> dict[str, Any]:
        """Return the state for another process, which creates its own models."""
        return {name: value for name, value in self.__dict__.items() if name not in ("models", "_slices")}

    @cached_property
    def models(self) -> MakeModel:
        """Return the factory for each person's model."""
        return self.recipe.models(self.ratings)

    @cached_property
    def _slices(self) -> list[slice]:
        return self.ratings.by_person()

    def ratings_of(self, person: int) -> dict[int, float]:
        """Return a person's ratings, in the order of the items."""
        mine = self._slices[person]
        items, values = self.ratings.items[mine], self.ratings.values[mine]
        order = np.argsort(items)
        return dict(zip(items[order].tolist(), values[order].tolist(), strict=True))

    def events_of(self, person: int) -> Events:
        """Return a person's choices, in time order; without times, in the order of the file."""
        mine, ratings = self._slices[person], self.ratings
        items, times, order = ratings.items[mine], ratings.times, ratings.order
        place = np.arange(items.size) if order is None else order[mine]
        when = place.astype(np.float64) if times is None else times[mine].astype(np.float64)
        kept = np.lexsort((place, when))
        return Events(items[kept], when[kept])

    def texts_of(self, person: int) -> list[str]:
        """Return the texts of a person, whose events are words."""
        words, found = self.ratings.catalogue.ids, self.events_of(person).items
        texts = [part[part != END] for part in np.split(found, np.flatnonzero(found == END))]
        return [" ".join(_NO_WORD if row == UNKNOWN else words[row] for row in rows) for rows in texts if rows.size]

    def ratings_a_device(self) -> tuple[int, int]:
        """Return the minimum and the maximum number of ratings on a device."""
        counts = [mine.stop - mine.start for mine in self._slices]
        return min(counts), max(counts)

    def model_of(self, person: int) -> Model:
        """Return the model on this person's device, whose arithmetic depends on the seed only."""
        return reproducible(self.models(person), seed=self.seed, person=person)

    def hold_out_key_of(self, person: int) -> bytes:
        """Return the hold-out key of this person's device; nothing is secret in a run."""
        return hashlib.sha256(f"secemb simulation {self.seed} {person}".encode()).digest()

    def random_bytes(self, use: str, *names: int) -> RandomBytes:
        """Return a reproducible source of random bytes for a device or a server, which is different for each use."""
        return _NamedBytes(self._name(use, *names))

    def device_bytes(self, number: int, person: int) -> RandomBytes:
        """Return the random bytes of a device over HTTP, so that it chooses the simulated device's items.

        It draws the seed of its session first. The session, and the selection before it, then use the bytes of the
        single stream that the simulated device draws from.
        """
        name = self._name("session", number, person)
        stream, first = _NamedBytes(name), [hashlib.sha256(name.encode()).digest()]
        return lambda count: first.pop() if first else stream(count)

    def _name(self, use: str, *names: int) -> str:
        return f"secemb simulation {self.seed} {use} {names}"


def world_for(
    recipe: Recipe, ratings: RatingSet, *, seed: int, schedule: Schedule | None = None, **changes: Any
) -> World:
    """Return a world in which everybody trains with all ratings; `changes` are fields of its task."""
    task = recipe.task(ratings, seed=seed, **changes)
    in_turn = InTurn(people=ratings.person_count, cohort=task.cohort, smallest=task.min_cohort, seed=seed)
    return World(ratings=ratings, recipe=recipe, task=task, schedule=schedule or in_turn, seed=seed)
