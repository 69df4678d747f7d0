"""Research in one call: the protocol's own code, thousands of devices, one process, no HTTP."""

from collections.abc import Callable
from pathlib import Path
from time import perf_counter
from typing import Any

from secemb_sdk.models import Model
from secemb_sdk.models.registry import name_of
from secemb_shared.messages.measures import PATIENCE
from secemb_tools.datasets import RatingSet
from secemb_tools.errors import RunError, ScenarioError
from secemb_tools.simulation.baseline import measure_final
from secemb_tools.simulation.engine import RUN_WAYS, Engine, Row
from secemb_tools.simulation.noise import noise_wanted
from secemb_tools.simulation.processes import Processes, count_for
from secemb_tools.simulation.recipes import whole
from secemb_tools.simulation.rounds import PLAIN, PRIVATE
from secemb_tools.simulation.run import FILE as RUN_FILE
from secemb_tools.simulation.run import Run
from secemb_tools.simulation.scenario import ScenarioWorld, make_world, read_data
from secemb_tools.simulation.state import FILE, restore_state

SAVE_EVERY = 10  # rounds

Watcher = Callable[[Row], None]


def simulate(
    *,
    model: str | Model = "mf",
    data: Any = None,
    devices: int | None = None,
    items: int = 400,
    evaluate_every: int = 6,
    patience: int = PATIENCE,
    seed: int = 1,
    epsilon: float | None = None,
    delta: float | None = None,
    unit: str | None = None,
    clip: float | None = None,
    privacy: Path | str | None = None,
    way: str = PRIVATE,
    compare_plain: bool = False,
    runs: Path | str | None = None,
    name: str | None = None,
    save_every: int = SAVE_EVERY,
    watch: Watcher | None = None,
    processes: int | None = 1,
    **settings: Any,
) -> Run:
    """Run a scenario and return it: `.table()`, `.plot()`, `.save(folder)`.

    `settings` are fields of `secemb_tools.simulation.recipes.Recipe`, such as `rounds`, `cohort`, `capacity`,
    `dimension`, `loss`, `rate=0.02`, `penalty` or `optimiser`; those not given follow from the data by a rule,
    and all of them are in the run's file. With `epsilon`, or `privacy` (a file as for
    `secemb task create`), the run has a privacy budget and the corresponding noise.

    `data` is the path of a rating set, or of texts for a model that learns from those; a polars or pandas frame; or
    the result of `secemb_tools.datasets.read_ratings`. Without it ratings are generated. `model` is a registered
    name, a class as `package.module:Class`, or a model instance, which is known in this process only and takes
    `processes=1`.

    On one machine the same arguments give the same table, bit for bit, here and over HTTP. With `runs` the run is saved
    in a directory with its name there, every `save_every` rounds and at the end; the same call again resumes an
    interrupted run.

    With `processes=None` a long run uses all cores; the table stays the same. A script that asks for that must guard
    its start with `if __name__ == "__main__":`, as always where Python starts processes.
    """
    if not isinstance(model, str) and processes != 1:
        raise ScenarioError("a model instance cannot be sent to other processes; use processes=1, or name its class")
    model = name_of(model)
    world = make_world(
        model=model,
        data=data if data is None or isinstance(data, RatingSet) else read_data(data, model=model, seed=seed),
        devices=devices,
        items=items,
        evaluate_every=evaluate_every,
        patience=patience,
        seed=seed,
        noise=noise_wanted(privacy=privacy, epsilon=epsilon, delta=delta, unit=unit, clip=clip),
        **settings,
    )
    return simulate_world(
        world,
        way=way,
        compare_plain=compare_plain,
        runs=None if runs is None else Path(runs),
        name=name,
        save_every=save_every,
        watch=watch,
        processes=processes,
    )


def simulate_world(
    world: ScenarioWorld,
    *,
    way: str = PRIVATE,
    compare_plain: bool = False,
    runs: Path | None = None,
    name: str | None = None,
    save_every: int = SAVE_EVERY,
    watch: Watcher | None = None,
    processes: int | None = 1,
) -> Run:
    """Run an existing world."""
    if way not in RUN_WAYS or whole("save_every", save_every) < 1:
        raise ScenarioError(f"way must be one of {', '.join(RUN_WAYS)}, and save_every at least 1")
    run = _begin(world, way, name or default_name(world, way), runs)
    ways = [way, PLAIN] if compare_plain else [way]
    if processes is not None:
        whole("processes", processes)
    else:
        processes = count_for(len(ways) * world.scenario.rounds * world.scenario.cohort)
    with Processes(processes) as shared:
        engines = [Engine(world, way=one, processes=shared) for one in ways]
        state = None if runs is None else runs / run.name / FILE
        tables = (restore_state(state, engines) if state is not None else None) or [[] for _ in engines]
        run.rows, run.plain, run.engines = tables[0], tables[1] if compare_plain else None, engines
        advance(run, runs=runs, save_every=save_every, watch=watch)
    return run


def advance(run: Run, *, runs: Path | None, save_every: int = SAVE_EVERY, watch: Watcher | None = None) -> None:
    """Run the remaining rounds, and save the run regularly if there is a directory for it."""
    tables = [run.rows] if run.plain is None else [run.rows, run.plain]
    while not run.finished:
        start = perf_counter()
        for engine, table in zip(run.engines, tables, strict=True):
            table.append(engine.step())
        run.seconds += perf_counter() - start
        if watch is not None:
            watch(run.rows[-1])
        if runs is not None and len(run.rows) % save_every == 0 and not run.finished:
            run.save(runs)
    if run.final is None:
        for engine in run.engines:
            settle(run, engine)
        run.final = measure_final(run.engines[0])
        if runs is not None:
            run.save(runs)


def settle(run: Run, engine: Engine) -> None:
    """After the last round, restore the version with the best evaluations of the fleet."""
    if run.stopped:
        engine.return_to_best()
    elif run.without_vectors and engine.whole is None:
        engine.leave_vectors_out()


def default_name(world: ScenarioWorld, way: str) -> str:
    """Return a descriptive name for the run, which is different for each scenario."""
    scenario = world.scenario
    return f"{scenario.model}-{world.ratings.name.replace(' ', '-')}-{way}-{scenario.seed}-{scenario.digest}"


def _begin(world: ScenarioWorld, way: str, name: str, runs: Path | None) -> Run:
    run = Run(name=name, scenario=world.scenario, way=way, task_id=world.task.task_id.hex())
    if Path(name).name != name or name in (".", ".."):
        raise RunError("a run's name must be a directory name, without a path")
    if runs is None or not (runs / name / RUN_FILE).exists():
        return run
    before = Run.load(runs / name)
    if (before.scenario, before.way) != (run.scenario, way):
        raise RunError(f"{runs / name} contains a run with different settings; choose another --name, or remove it")
    run.seconds = before.seconds
    return run
