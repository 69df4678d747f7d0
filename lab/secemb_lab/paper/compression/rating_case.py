"""One training of the table of utility: a model on a set of ratings, with one method and one seed."""

from dataclasses import dataclass
from pathlib import Path
from time import process_time

from secemb_lab.bench.device_models import SIDES
from secemb_lab.paper.compression.compressor import Compressor
from secemb_lab.paper.compression.reductions import BY_NAME, SECEMB, compressor_of, rank_of
from secemb_lab.paper.compression.stored_cases import Figures
from secemb_lab.report.published import BAR_COHORT, BARS
from secemb_tools.datasets import RatingSet, Split, read_ratings, split
from secemb_tools.datasets.made_up import make_ratings
from secemb_tools.simulation.accuracy import measure_ratings
from secemb_tools.simulation.baseline import bias_only_rmse
from secemb_tools.simulation.engine import Engine
from secemb_tools.simulation.recipes import Recipe
from secemb_tools.simulation.rounds import PLAIN
from secemb_tools.simulation.scenario import with_scale
from secemb_tools.simulation.world import World, world_for

FOLDERS = {"ML100K": "ml-100k", "ML1M": "ml-1m", "ML10M": "ml-10m", "ML25M": "ml-25m", "Yelp": "yelp"}
_DIMENSION = 64  # of the paper, if its table has no other
_QUICK_ROUNDS = 2
_SECONDS = {"mf": 0.1, "ncf": 0.16, "fm": 0.22, "deepfm": 1.7}  # of a round of 100 devices, about


@dataclass(frozen=True, slots=True, kw_only=True)
class RatingCase:
    """The model, set and method of a training."""

    catalogue: str  # as in the paper's tables
    model: str
    method: str
    seed: int
    path: Path | None = None  # None: synthetic ratings and few rounds

    @property
    def name(self) -> str:
        """Return the name of the case."""
        method = self.method.lower().replace(" ", "-")
        return f"{self.catalogue.lower()}-{self.model}-{method}-{self.seed}{'' if self.path else '-quick'}"

    @property
    def weight(self) -> float:
        """Return the approximate duration in seconds."""
        return _SECONDS[self.model] * (self.rounds or 10 * BAR_COHORT)

    @property
    def rounds(self) -> int | None:
        """Return how many rounds there are: those after which the product's own report measures; None: by rule."""
        if self.path is None:
            return _QUICK_ROUNDS
        return BARS.get(self.catalogue, {}).get(self.model, (None, None))[0]

    @property
    def compressor(self) -> Compressor | None:
        """Return the compressor of updates."""
        return compressor_of(self.method, rank=rank_of(self.model, self.catalogue))

    def measure(self) -> Figures:
        """Train; return the error on a random fifth of all ratings, and that of the biases alone."""
        begin = process_time()
        ratings = make_ratings(people=60, items=80, most=40, seed=7) if self.path is None else _read(self.path)
        data = split(ratings, seed=self.seed)
        world = self.world(data)
        engine = Engine(world, way=PLAIN, lossy=self.compressor)
        for _ in range(world.recipe.rounds):
            engine.step()
        return {
            "rmse": measure_ratings(engine.predict(data.test), data).rmse.value,
            "biases": bias_only_rmse(data),
            "rounds": world.recipe.rounds,
            "failed": engine.counts.failed,
            "cpu_seconds": process_time() - begin,
        }

    def world(self, data: Split) -> World:
        """Return the world of the run.

        SecEmb trains with m' of a person's items in a round, as in the paper. The others send a message about every
        item, so they need not omit any.
        """
        train, catalogue = data.train, BY_NAME[self.catalogue]
        most = max(mine.stop - mine.start for mine in train.by_person())
        recipe = Recipe.by_rule(
            train,
            model=self.model,
            rounds=self.rounds,
            cohort=min(BAR_COHORT, train.person_count),
            capacity=min(train.item_count, catalogue.capacity if self.method == SECEMB else max(4, most)),
            dimension=SIDES[self.catalogue].dimensions.get(self.model, _DIMENSION),
        )
        return world_for(with_scale(recipe, train, seed=self.seed), train, seed=self.seed)


def _read(path: Path) -> RatingSet:
    return read_ratings(path, quiet=True)
