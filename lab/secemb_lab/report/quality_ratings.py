"""Ratings in `make quality`: one model on one set, plainly and privately, beside the mean and the biases."""

from dataclasses import dataclass
from time import process_time

from secemb_lab.report.published import BARS, PAPER
from secemb_lab.report.quality_data import Source
from secemb_shared.messages import TaskSpec
from secemb_shared.messages.codec import Sizes
from secemb_tools.datasets import Split
from secemb_tools.simulation.accuracy import Estimate, measure_ratings
from secemb_tools.simulation.baseline import predict_biases, predict_mean
from secemb_tools.simulation.engine import Engine
from secemb_tools.simulation.recipes import Recipe
from secemb_tools.simulation.rounds import PLAIN, PRIVATE
from secemb_tools.simulation.scenario import with_scale
from secemb_tools.simulation.world import World, world_for

NUMBER_BYTES = 4  # of the dense part


class Comparison:
    """Two runs of one world, round by round. CPU times are of this process, and measurements are not in them."""

    def __init__(self, world: World, *, rounds: int, private_rounds: int | None) -> None:
        """Compare the first `private_rounds`, or all of them if that is None."""
        self.plain, self.private = (Engine(world, way=way) for way in (PLAIN, PRIVATE))
        self.rounds = rounds
        self.private_rounds = rounds if private_rounds is None else min(private_rounds, rounds)
        self.same_bits = True  # after every round so far that both have run
        self.plain_seconds = self.private_seconds = 0.0

    @property
    def whole(self) -> bool:
        """Tell whether the private run goes to the end."""
        return self.private_rounds == self.rounds

    def step(self) -> int:
        """Run the next round; return how many have been run."""
        begin = process_time()
        self.plain.step()
        middle = process_time()
        self.plain_seconds += middle - begin
        if self.plain.rounds <= self.private_rounds:
            self.private.step()
            self.private_seconds += process_time() - middle
            self.same_bits = self.same_bits and self.plain.model.digest == self.private.model.digest
        return self.plain.rounds


def measured_after(done: int, rounds: int) -> bool:
    """Tell whether a curve has a point after this many rounds: often at first, where it falls, and at the end."""
    step = 5 if done <= 50 else 25 if done <= 100 else 50
    return done % step == 0 or done == rounds


@dataclass(frozen=True, slots=True, kw_only=True)
class RatingCase:
    """The model and set of a training; everything that is None follows from the rule."""

    source: Source
    seed: int
    model: str = "mf"
    rounds: int | None = None
    cohort: int | None = None
    private_rounds: int | None = None  # None: the private run goes to the end

    def __str__(self) -> str:
        """Return what this is, for a line of progress."""
        return ", ".join(filter(None, (self.source.name, self.source.sample, self.model, f"seed {self.seed}")))


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionBytes:
    """What a device moves in one round, up and down, without HTTP: its messages and the dense part."""

    direct: tuple[int, int]
    relayed: tuple[int, int]

    @classmethod
    def of(cls, task: TaskSpec) -> "SessionBytes":
        """Return the bytes that follow from a task."""
        sizes, dense = Sizes.of(task), NUMBER_BYTES * task.dense_size
        return cls(
            direct=(sizes.upload, sizes.download + dense),
            relayed=(sizes.relayed_upload, sizes.relayed_download + dense),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class RatingRun:
    """The results of one case."""

    dataset: str
    sample: str  # empty: the whole set
    model: str
    seed: int
    people: int
    items: int
    train: int
    interactions: int  # held-out ratings: every figure is over all of them
    rounds: int
    cohort: int
    rmse: Estimate
    mean: float  # RMSE of the global mean
    biases: float  # RMSE of the user and item biases
    private_rmse: float | None  # None if the private run has not gone to the end
    paper: float | None
    bar: float | None  # None if the case is not the one that the bar is for
    curve: list[tuple[int, float]]  # rounds, and the plain run's RMSE after them
    private_rounds: int
    same_bits: bool
    sessions: int
    clipped: int
    failed: int
    cpu_seconds: float
    private_cpu_seconds: float
    bytes: SessionBytes

    @property
    def rounds_to_paper(self) -> int | None:
        """Return after how many rounds the paper's RMSE was first measured."""
        return next((done for done, rmse in self.curve if self.paper is not None and rmse <= self.paper), None)


def measure_case(case: RatingCase) -> RatingRun:
    """Train as the case says, and measure on a random fifth of the ratings."""
    data = case.source.split("random", seed=case.seed)
    recipe = Recipe.by_rule(data.train, model=case.model, rounds=case.rounds, cohort=case.cohort)
    recipe = with_scale(recipe, data.train, seed=case.seed)
    world = world_for(recipe, data.train, seed=case.seed)
    both = Comparison(world, rounds=recipe.rounds, private_rounds=case.private_rounds)
    curve = []
    for _ in range(recipe.rounds):
        done = both.step()
        if measured_after(done, recipe.rounds):
            curve.append((done, _rmse(both.plain, data).value))
    label, counts = "" if case.source.of else data.train.label, both.plain.counts
    rounds, bar = BARS.get(label, {}).get(case.model, (None, None))
    return RatingRun(
        dataset=data.train.label,
        sample=case.source.sample,
        model=case.model,
        seed=case.seed,
        people=data.train.person_count,
        items=data.train.item_count,
        train=data.train.values.size,
        interactions=data.test.values.size,
        rounds=recipe.rounds,
        cohort=recipe.cohort,
        rmse=_rmse(both.plain, data),
        mean=measure_ratings(predict_mean(data), data).rmse.value,
        biases=measure_ratings(predict_biases(data), data).rmse.value,
        private_rmse=_rmse(both.private, data).value if both.whole else None,
        paper=PAPER.get(label, {}).get(case.model),
        bar=bar if case.rounds is not None and case.rounds == rounds else None,
        curve=curve,
        private_rounds=both.private_rounds,
        same_bits=both.same_bits,
        sessions=counts.sessions,
        clipped=counts.clipped,
        failed=counts.failed,
        cpu_seconds=both.plain_seconds,
        private_cpu_seconds=both.private_seconds,
        bytes=SessionBytes.of(world.task),
    )


def _rmse(engine: Engine, data: Split) -> Estimate:
    return measure_ratings(engine.predict(data.test), data).rmse
