"""What a run has trained, in use: recommendations for a person of the set or for a few liked items, and an export."""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from typing_extensions import TypedDict

from secemb_party.storage import Model, tensors
from secemb_sdk import Recommendation
from secemb_sdk.models import Floats, PrivateState, learn
from secemb_sdk.models import Model as DeviceModel
from secemb_sdk.models.interface import SolvedModel
from secemb_sdk.models.update import fit_private
from secemb_sdk.recommend.rank import best, block_rows, score
from secemb_shared.catalogue import Catalogue
from secemb_shared.randomness import Indices
from secemb_tools.datasets.catalogue import write_catalogue
from secemb_tools.errors import RunError
from secemb_tools.simulation.devices import ratings_to_fit
from secemb_tools.simulation.engine import Engine
from secemb_tools.simulation.world import World

EXPORT = "secemb/1 run export"
_STEPS, _RATE = 200, 0.05  # of a private part that cannot be solved
_ANYBODY = 0  # whose device's model likes are fitted with


class Exported(TypedDict):
    """A run's model, written to a file."""

    version: int
    digest: str
    file: str
    catalogue: str | None


@dataclass(frozen=True, slots=True)
class Recommender:
    """A model where its engine stands, with the people who trained it."""

    engine: Engine

    @property
    def world(self) -> World:
        """Return what the run follows from."""
        return self.engine.world

    @property
    def model(self) -> Model:
        """Return the shared part of the model."""
        return self.engine.model

    @property
    def catalogue(self) -> Catalogue:
        """Return the ids and titles of the items."""
        return self.world.ratings.catalogue

    def for_user(self, name: str, *, k: int = 10, include_rated: bool = False) -> list[Recommendation]:
        """Return the best items for a person of the set, by external id."""
        person = self.world.ratings.person_of(name)
        own = self.world.ratings_of(person)
        known = person in self.engine.privates or isinstance(self.world.models(person), SolvedModel)
        private = self.engine.private_of(person) if known else self._fit(person, own)
        return self._best(person, private, k, () if include_rated else own)

    def for_likes(self, likes: Iterable[str], *, k: int = 10) -> list[Recommendation]:
        """Return the best items for someone who likes these, by external id; the private part is fitted to them."""
        highest = float(self.world.ratings.values.max())
        liked = {self.catalogue.row_of(name): highest for name in likes}
        if not liked or max(liked) >= self.world.task.items:
            raise RunError(f"give liked items by ids of the set, which has {self.world.task.items:,} items")
        return self._best(_ANYBODY, self._fit(_ANYBODY, liked), k, liked)

    def export(self, path: Path, facts: Mapping[str, object]) -> Exported:
        """Write rows and dense part with the task and these facts, and the catalogue beside them."""
        if path.exists():
            raise RunError(f"{path} exists and is not overwritten; name another file")
        path.parent.mkdir(parents=True, exist_ok=True)
        model, task = self.model, self.world.task
        arrays = {"rows": model.rows} | ({"dense": model.dense} if model.dense.size else {})
        metadata = tensors.origin(EXPORT, task.task_id, model.version, model.digest)
        tensors.write(path, arrays, {**metadata, "specification": task.encode().decode(), "run": json.dumps(facts)})
        beside = path.with_suffix(".catalogue.csv") if len(self.catalogue) else None
        if beside is not None:
            write_catalogue(self.catalogue, beside)
        return {
            "version": model.version,
            "digest": model.digest.hex(),
            "file": str(path),
            "catalogue": None if beside is None else str(beside),
        }

    def _fit(self, person: int, own: Mapping[int, float]) -> Floats:
        """Return the private part that fits these ratings, given the rows as they are."""
        model, ratings = self.world.model_of(person), ratings_to_fit(self.world, own, own, person=person)
        state, rows = PrivateState.begin(model, np.random.default_rng(self.world.seed)), self.model.rows[ratings.items]
        if isinstance(model, SolvedModel):
            return fit_private(model, state, rows, self.model.dense, ratings).values
        for _ in range(_STEPS if own else 0):
            *_, state = learn(model, state, rows, self.model.dense, ratings, rate=_RATE)
        return state.values

    def _best(self, person: int, private: Floats, k: int, exclude: Iterable[int]) -> list[Recommendation]:
        if k < 1:
            raise RunError("k must be at least 1")
        model, step = self.world.models(person), block_rows(self.world.task.row_width)
        wanted = np.setdiff1d(np.arange(self.world.task.items), np.fromiter(exclude, dtype=np.int64))
        blocks = [self._scores(model, wanted[at : at + step], private) for at in range(0, wanted.size, step)]
        items, scores = best(wanted, np.concatenate([*blocks, np.empty(0, np.float32)]), k)
        names = self.catalogue
        return [
            Recommendation(item, value, names.id_of(item), names.title_of(item))
            for item, value in zip(items.tolist(), scores.tolist(), strict=True)
        ]

    def _scores(self, model: DeviceModel, items: Indices, private: Floats) -> Floats:
        return score(model, items, self.model.rows[items], dense=self.model.dense, private=private)
