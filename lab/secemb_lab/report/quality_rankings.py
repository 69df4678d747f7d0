"""Choices without ratings in `make quality`: rankings of the whole catalogue, beside popularity and a central model."""

from dataclasses import dataclass
from time import process_time

import numpy as np

from secemb_lab.report.quality_data import Source, few_people
from secemb_lab.report.quality_ratings import Comparison, measured_after
from secemb_sdk.models import Floats
from secemb_shared.randomness import Indices
from secemb_tools.datasets import Split
from secemb_tools.simulation.accuracy import Estimate, ScoresOf, measure_ranking
from secemb_tools.simulation.baseline import popularity
from secemb_tools.simulation.engine import Engine
from secemb_tools.simulation.recipes import Recipe
from secemb_tools.simulation.world import world_for

K = 20  # first places that count
CURVE_PEOPLE = 500  # whose rankings the points of a curve are from; figures are from everyone's
CENTRAL_EPOCHS = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class RankingCase:
    """The model and set of a training; everything else follows from the rule."""

    source: Source
    split: str
    loss: str
    seed: int
    model: str = "mf"
    rounds: int | None = None
    private_rounds: int | None = None  # None: the private run goes to the end

    def __str__(self) -> str:
        """Return what this is, for a line of progress."""
        return f"{self.source.name}, choices, {self.model}, {self.loss}, seed {self.seed}"


@dataclass(frozen=True, slots=True, kw_only=True)
class BaselineCase:
    """A ranking without SecEmb."""

    source: Source
    split: str
    seed: int
    epochs: int = CENTRAL_EPOCHS

    def __str__(self) -> str:
        """Return what this is, for a line of progress."""
        return f"{self.source.name}, choices, popularity and central BPR"


@dataclass(frozen=True, slots=True, kw_only=True)
class RankingRun:
    """The results of one case."""

    dataset: str
    split: str
    model: str
    loss: str
    seed: int
    people: int
    items: int
    train: int
    interactions: int  # held-out choices: every figure is over all of them
    k: int
    rounds: int
    cohort: int
    recall: Estimate
    ndcg: Estimate
    curve: list[tuple[int, float]]  # rounds, and the recall of some people after them
    private_rounds: int
    same_bits: bool
    cpu_seconds: float
    private_cpu_seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class BaselineRun:
    """The results of popularity or the central model."""

    dataset: str
    name: str
    k: int
    interactions: int
    recall: Estimate
    ndcg: Estimate
    cpu_seconds: float


def measure_ranking_case(case: RankingCase) -> RankingRun:
    """Train as the case says, and rank the whole catalogue for everyone who has held-out choices."""
    data = case.source.split(case.split, seed=case.seed)
    few = few_people(data, CURVE_PEOPLE, seed=case.seed)
    recipe = Recipe.by_rule(data.train, model=case.model, loss=case.loss, rounds=case.rounds)
    world = world_for(recipe, data.train, seed=case.seed)
    both = Comparison(world, rounds=recipe.rounds, private_rounds=case.private_rounds)
    curve = []
    for _ in range(recipe.rounds):
        done = both.step()
        if measured_after(done, recipe.rounds):
            curve.append((done, measure_ranking(_scores_of(both.plain), few, k=K).recall.value))
    found = measure_ranking(_scores_of(both.plain), data, k=K)
    return RankingRun(
        dataset=data.train.label,
        split=case.split,
        model=case.model,
        loss=case.loss,
        seed=case.seed,
        people=data.train.person_count,
        items=data.train.item_count,
        train=data.train.values.size,
        interactions=found.interactions,
        k=K,
        rounds=recipe.rounds,
        cohort=recipe.cohort,
        recall=found.recall,
        ndcg=found.ndcg,
        curve=curve,
        private_rounds=both.private_rounds,
        same_bits=both.same_bits,
        cpu_seconds=both.plain_seconds,
        private_cpu_seconds=both.private_seconds,
    )


def measure_baselines_case(case: BaselineCase) -> list[BaselineRun]:
    """Return what popularity and a model that sees everything make of the same choices."""
    from secemb_lab.report.central_bpr import CentralBpr  # here: torch takes seconds to import

    data = case.source.split(case.split, seed=case.seed)
    popular, begin = popularity(data.train), process_time()
    central = CentralBpr(data.train, epochs=case.epochs, seed=case.seed)
    seconds = process_time() - begin
    return [
        _baseline("popularity", data, lambda people: np.broadcast_to(popular, (people.size, popular.size)), 0.0),
        _baseline(f"central BPR, {case.epochs} epochs", data, central.scores_of, seconds),
    ]


def _baseline(name: str, data: Split, scores_of: ScoresOf, seconds: float) -> BaselineRun:
    found = measure_ranking(scores_of, data, k=K)
    return BaselineRun(
        dataset=data.train.label,
        name=name,
        k=K,
        interactions=found.interactions,
        recall=found.recall,
        ndcg=found.ndcg,
        cpu_seconds=seconds,
    )


def _scores_of(engine: Engine) -> ScoresOf:
    everything, rows, dense = np.arange(engine.world.task.items), engine.model.rows, engine.model.dense

    def scores_of(people: Indices) -> Floats:
        models = ((person, engine.world.models(person)) for person in people.tolist())
        return np.stack([model.scores(rows, dense, engine.private_of(one), everything) for one, model in models])

    return scores_of
