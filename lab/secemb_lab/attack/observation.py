"""Observations of two servers by their operators, and of the model: counters, memory, rows, errors and a rank."""

import re
from collections import Counter
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from secemb_party.storage import Model, ModelFiles, Shape
from secemb_sdk.models import PrivateState
from secemb_sdk.models.scale import Scale
from secemb_sdk.models.update import fit_private
from secemb_sdk.round.selection import to_fit
from secemb_tools.datasets import Split
from secemb_tools.local import Pair, Service
from secemb_tools.operate.settings import settings_at
from secemb_tools.operate.tokens import list_some
from secemb_tools.simulation.world import World

_COUNTERS = re.compile(
    r"^secemb_(refusals|sessions_rejected|rounds|conductor_failures)_total(?:\{(.*)\})? (\S+)$", re.MULTILINE
)
_TOKENS = 1000
_LABEL = re.compile(r'\b(?!task=)\w+="([^"]*)"')


def counters_of(server: Service) -> Counter[str]:
    """Return how much a server has refused, rejected and ended so far in all of its tasks, from its metrics."""
    text = server.metrics()
    found: Counter[str] = Counter()
    for name, labels, value in _COUNTERS.findall(text):
        words = [name.replace("_", " "), *_LABEL.findall(labels)]
        found[": ".join(one for one in words if one != "self")] += round(float(value))
    return found


async def tokens_of(server: Service) -> dict[str, Counter[str]]:
    """Return the counts of `secemb token list`, for honest and hostile devices together."""
    found: dict[str, Counter[str]] = {}
    for row in await list_some(settings_at(server.folder), after="", limit=_TOKENS):
        counts = found.setdefault(row["name"].split()[0], Counter())
        counts.update(
            joined=row["joined"], completed=row["completed"], refused=row["refused"], rejected=row["rejected"]
        )
    return found


def difference(new: dict[str, Counter[str]], old: dict[str, Counter[str]]) -> dict[str, dict[str, int]]:
    """Return the increase of counters."""
    return {name: dict(counts - old[name]) for name, counts in new.items()}


@dataclass(frozen=True)
class Judge:
    """Evaluates versions of the model on ratings that no device has."""

    world: World
    split: Split

    def newest(self, pair: Pair) -> Model:
        """Return the newest version that server 0 has published."""
        folder = settings_at(pair.servers[0].folder).data_dir / "models"
        store = ModelFiles(folder, pair.task.task_id, Shape.of(pair.task))
        published = [one["version"] for one in pair.servers[0].ask("models") if one["published_at"] is not None]
        return store.load(max(published))

    def rmse(self, model: Model) -> float:
        """Return the error over the held-out ratings of everybody."""
        return float(np.sqrt(np.mean((self._predictions(model) - self.split.test.values) ** 2)))

    def rank(self, model: Model, item: int) -> int:
        """Return the rank of an item among all by its bias, the best first; the middle rank in ties."""
        biases = model.rows[:, -1]
        return int((biases > biases[item]).sum()) + int((biases == biases[item]).sum() + 1) // 2

    @cached_property
    def rated(self) -> set[int]:
        """Return the items that at least one honest device has."""
        return set(self.split.train.items.tolist())

    @cached_property
    def unrated(self) -> list[int]:
        """Return the other items, in random order."""
        rest = np.setdiff1d(np.arange(self.world.task.items), self.split.train.items)
        found: list[int] = np.random.default_rng(self.world.seed).permutation(rest).tolist()
        return found

    def rows_touched(self, old: Model, new: Model) -> int:
        """Count the rows that changed although no honest device has rated them."""
        changed = np.flatnonzero((old.rows != new.rows).any(axis=1))
        return len(set(changed.tolist()) - self.rated)

    def _predictions(self, model: Model) -> "np.ndarray[tuple[int], np.dtype[np.float64]]":
        test, found = self.split.test, np.zeros(self.split.test.values.size)
        scale = Scale.of(self.world.task)
        for person in np.unique(test.people).tolist():
            mine, own = np.flatnonzero(test.people == person), self.world.ratings_of(person)
            device = self.world.model_of(person)
            ratings = to_fit(self.world.task, own, own, self.world.random_bytes("judge", person))
            state = PrivateState.begin(device, np.random.default_rng(self.world.seed))
            private = fit_private(device, state, model.rows[ratings.items], model.dense, ratings).values
            items = test.items[mine]
            scores = device.scores(model.rows[items], model.dense, private, items)
            found[mine] = np.clip(scale.restore(scores), scale.lowest, scale.highest)
        return found
