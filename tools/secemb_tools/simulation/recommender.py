"""A run's model in use: recommendations for a person of the set or for a few liked items, and an export."""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from typing_extensions import TypedDict

from secemb_party.storage import Model
from secemb_party.storage.tensor_files import write_tensors
from secemb_party.storage.weights import origin
from secemb_sdk import Recommendation
from secemb_sdk.models import Floats, PrivateState, learn
from secemb_sdk.models.interface import follows, is_solved
from secemb_sdk.models.scale import Scale
from secemb_sdk.models.update import fit_private
from secemb_sdk.models.window import newest
from secemb_sdk.recommend.rank import best, block_rows, score
from secemb_sdk.round.selection import to_fit
from secemb_shared.catalogue import Catalogue
from secemb_shared.messages.spec import SQUARED
from secemb_tools.datasets.catalogue import write_catalogue
from secemb_tools.errors import RunError
from secemb_tools.simulation.engine import Engine
from secemb_tools.simulation.world import World

EXPORT = "secemb/1 run export"
_STEPS, _RATE = 200, 0.05  # for a private part that cannot be solved
_OTHERS, _FEWEST_OTHERS = 4, 40  # additional items for each liked one, and in total
_MOST = 10.0  # maximum factor by which the effect of likes is scaled
_ANYBODY = 0  # person whose device's model is used for likes


class Exported(TypedDict):
    """A run's model, written to a file."""

    version: int
    digest: str
    file: str
    catalogue: str | None


@dataclass(frozen=True, slots=True)
class Recommender:
    """A model in the state of its engine, with the people who trained it."""

    engine: Engine

    @property
    def world(self) -> World:
        """Return the world of the run."""
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
        model = self.world.models(person)
        known = person in self.engine.privates or is_solved(model) or follows(model)
        private = self.engine.private_of(person) if known else self._fit(person, own)
        return self._best(self._scores(person, private), k, () if include_rated else own)

    def for_likes(self, likes: Iterable[str], *, k: int = 10) -> list[Recommendation]:
        """Return the best items for someone who likes these, by external id; the private part is fitted to them."""
        highest = float(self.world.ratings.values.max())
        liked = {self.catalogue.row_of(name): highest for name in likes}
        if not liked or max(liked) >= self.world.task.items:
            raise RunError(f"give liked items by their ids in the set, which has {self.world.task.items:,} items")
        squared = self.world.task.loss == SQUARED
        return self._best(
            self._rate(liked) if squared else self._scores(_ANYBODY, self._fit(_ANYBODY, liked)), k, liked
        )

    def export(self, path: Path, facts: Mapping[str, object]) -> Exported:
        """Write rows and dense part with the task and these facts, and the catalogue next to them."""
        if path.exists():
            raise RunError(f"{path} already exists and will not be overwritten; choose another file")
        path.parent.mkdir(parents=True, exist_ok=True)
        model, task = self.model, self.world.task
        arrays = {"rows": model.rows} | ({"dense": model.dense} if model.dense.size else {})
        metadata = origin(EXPORT, task.task_id, model.version, model.digest)
        write_tensors(path, arrays, {**metadata, "specification": task.encode().decode(), "run": json.dumps(facts)})
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
        """Return the private part that fits these ratings, with fixed rows."""
        model, random_bytes = self.world.model_of(person), self.world.random_bytes("fit", person)
        if follows(model):  # likes are events, in the given order
            ratings = newest(np.fromiter(own, dtype=np.int64), model.length)
        else:
            ratings = to_fit(self.world.task, own, own, random_bytes)
        state, rows = PrivateState.begin(model, np.random.default_rng(self.world.seed)), self.model.rows[ratings.items]
        if follows(model) or is_solved(model):
            return fit_private(model, state, rows, self.model.dense, ratings).values
        for _ in range(_STEPS if own else 0):
            *_, state = learn(model, state, rows, self.model.dense, ratings, rate=_RATE)
        return state.values

    def _rate(self, liked: Mapping[int, float]) -> Floats:
        """Return the predicted ratings of someone who likes these items.

        A few ratings that are all high could mean that the person rates high, and penalties would shrink most of the
        effect. So other items with average ratings are added; and the difference that the fit then makes to average
        ratings is scaled until the liked items have their given ratings.
        """
        places, given = list(liked), np.fromiter(liked.values(), dtype=np.float32)
        usual = self._scores(_ANYBODY, np.zeros(self.world.models(_ANYBODY).private_size, np.float32))
        rest = np.setdiff1d(np.arange(usual.size), places)
        count = min(rest.size, max(_FEWEST_OTHERS, _OTHERS * len(liked)))
        others = np.random.default_rng(self.world.seed).choice(rest, count, replace=False)
        private = self._fit(_ANYBODY, {**{item: float(usual[item]) for item in others.tolist()}, **liked})
        added = self._scores(_ANYBODY, private) - usual
        wanted, found = float(np.mean(given - usual[places])), float(np.mean(added[places]))
        scale = min(_MOST, max(1.0, wanted / found)) if found > 0 else 1.0
        rated: Floats = usual + np.float32(scale) * added
        return rated

    def _scores(self, person: int, private: Floats) -> Floats:
        """Return the score of every item, on the scale of the ratings."""
        model, items = self.world.models(person), np.arange(self.world.task.items)
        step = block_rows(self.world.task.row_width)
        blocks = np.array_split(items, range(step, items.size, step))
        rows, dense = self.model.rows, self.model.dense
        found = np.concatenate([score(model, one, rows[one], dense=dense, private=private) for one in blocks])
        return Scale.of(self.world.task).restore(found)

    def _best(self, scores: Floats, k: int, exclude: Iterable[int]) -> list[Recommendation]:
        if k < 1:
            raise RunError("k must be at least 1")
        wanted = np.setdiff1d(np.arange(scores.size), np.fromiter(exclude, dtype=np.int64))
        items, values = best(wanted, scores[wanted], k)
        names = self.catalogue
        return [
            Recommendation(item, value, names.id_of(item), names.title_of(item))
            for item, value in zip(items.tolist(), values.tolist(), strict=True)
        ]
