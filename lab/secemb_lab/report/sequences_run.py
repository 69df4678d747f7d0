"""One case of `make sequences`: a run of `secemb simulate` with its measurements, and a private run."""

from dataclasses import dataclass, field
from itertools import takewhile
from pathlib import Path
from typing import Any

from secemb_lab.report.quality_ratings import SessionBytes
from secemb_lab.report.sequences_cost import Bytes, DeviceCost, measure_device, measure_wire, update_bytes_of
from secemb_tools.simulation.baseline import AMONG_STRANGERS
from secemb_tools.simulation.engine import Engine, Row
from secemb_tools.simulation.processes import Processes
from secemb_tools.simulation.rounds import PLAIN, PRIVATE
from secemb_tools.simulation.run import Run
from secemb_tools.simulation.scenario import ScenarioWorld, make_world
from secemb_tools.simulation.simulate import simulate_world

MADE_UP = "made-up"
Point = tuple[int, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """A model and a set to train it on; all other settings follow from the rule."""

    model: str  # a name of the registry
    path: Path | None = None  # None: made up
    private_rounds: int | None = None  # None: all of them
    seed: int = 1
    settings: dict[str, Any] = field(default_factory=dict)

    @property
    def dataset(self) -> str:
        """Return the name of the set's folder."""
        return MADE_UP if self.path is None else self.path.name

    @property
    def name(self) -> str:
        """Return what users call the case."""
        return f"{self.dataset}-{self.model}"


@dataclass(frozen=True, slots=True, kw_only=True)
class SequenceRun:
    """The results of one case."""

    name: str
    dataset: str
    model: str
    seed: int
    people: int
    items: int
    events: int
    capacity: int
    cohort: int
    trained: int  # rounds that train
    rounds: int  # with evaluations
    ended: str  # why there were no more
    final: dict[str, Any]  # figures over everything held out, by what they are of, as the run has them
    curve: list[Point]  # rounds, and HR@10 in the fleet's newest evaluations by then
    popular_curve: list[Point]  # the same by the items' biases
    strangers: int | None  # among which the fleet ranks; None: it ranks nothing
    private_wanted: int  # rounds of a private run that should equal the plain one
    private_rounds: int  # that do, from the first until one differs
    seconds: float  # of training, of the private run too where it goes to the end
    bytes: SessionBytes
    update_bytes: int  # the whole update, table and dense part
    device: DeviceCost
    wire: dict[str, Bytes]  # of a real device with HTTP, by transport

    @property
    def same_bits(self) -> bool:
        """Tell whether each round of the private run had the bits of the plain one; no round shows nothing."""
        return self.private_rounds >= max(1, self.private_wanted)

    @property
    def reductions(self) -> tuple[float, float]:
        """Return two shares of the whole update as multiples of what a device sends, directly and relayed."""
        return 2 * self.update_bytes / self.bytes.direct[0], 2 * self.update_bytes / self.bytes.relayed[0]

    def figure(self, of: str, name: str, *, among: bool = True) -> float | None:
        """Return a ranking figure of the model or of popularity, among 100 strangers or in the whole catalogue."""
        return value_of(self.final.get(of + (AMONG_STRANGERS if among else ""), {}).get(name))


def value_of(found: Any) -> float | None:
    """Return a figure of a run as a number: some have an interval around it."""
    value = found.get("value") if isinstance(found, dict) else found
    return None if isinstance(value, bool) or not isinstance(value, int | float) else float(value)


def measure_case(case: Case, *, runs: Path, processes: int) -> SequenceRun:
    """Train as the case says, or go on with the run that is kept in a folder, and measure what it costs a device."""
    world = make_world(model=case.model, data=case.path, seed=case.seed, **case.settings)
    run = _train(world, case, runs, processes)
    wanted = len(run.rows) if case.private_rounds is None else min(case.private_rounds, len(run.rows))
    task, ratings = world.task, world.ratings
    strangers = next((row.figures["strangers"] for row in run.rows if "strangers" in row.figures), None)
    return SequenceRun(
        name=case.name,
        dataset=case.dataset,
        model=case.model,
        seed=case.seed,
        people=world.scenario.devices,
        items=task.items,
        events=ratings.values.size,
        capacity=task.capacity,
        cohort=task.cohort,
        trained=run.trained,
        rounds=len(run.rows),
        ended=run.ended,
        final=run.final or {},
        curve=_curve(run.rows, "hit_rate"),
        popular_curve=_curve(run.rows, "popular_hit_rate"),
        strangers=None if strangers is None else int(strangers),
        private_wanted=wanted,
        private_rounds=_equal_rounds(world, run, case.private_rounds, processes),
        seconds=run.seconds,
        bytes=SessionBytes.of(task),
        update_bytes=update_bytes_of(task),
        device=measure_device(case.model, dataset=case.dataset, items=task.items, capacity=task.capacity),
        wire=measure_wire(case.model, task, ratings.catalogue),
    )


def _train(world: ScenarioWorld, case: Case, runs: Path, processes: int) -> Run:
    """Return the run of full length: a private one beside a plain one, or a plain one alone."""
    whole = case.private_rounds is None
    return simulate_world(
        world,
        way=PRIVATE if whole else PLAIN,
        compare_plain=whole,
        runs=runs,
        name=case.name,
        processes=processes,
    )


def _equal_rounds(world: ScenarioWorld, run: Run, wanted: int | None, processes: int) -> int:
    """Return how many rounds of a private run have the bits of the plain one, from the first until one differs."""
    if wanted is None:
        return sum(1 for _ in takewhile(lambda both: both[0] == both[1], zip(run.rows, run.plain or (), strict=False)))
    with Processes(processes) as shared:
        engine = Engine(world, way=PRIVATE, processes=shared)
        return sum(1 for _ in takewhile(lambda row: engine.step() == row, run.rows[:wanted]))


def _curve(rows: list[Row], figure: str) -> list[Point]:
    return [(row.round, row.window[figure]) for row in rows if figure in row.window]
