"""Continuation of a saved run: more rounds, or a plain run to compare it with."""

from dataclasses import replace
from pathlib import Path

from secemb_tools.errors import RunError
from secemb_tools.simulation.engine import Engine, Row
from secemb_tools.simulation.processes import Processes, count_for
from secemb_tools.simulation.rounds import PLAIN
from secemb_tools.simulation.run import Run, Stretch
from secemb_tools.simulation.scenario import Scenario, world_of
from secemb_tools.simulation.simulate import SAVE_EVERY, Watcher, advance, settle
from secemb_tools.simulation.state import carry_over


def rounds_asked(text: str, run: Run) -> int:
    """Return how many rounds of a run should train: `+60` for additional rounds, `90` for the total."""
    digits = text.removeprefix("+")
    if not (digits.isascii() and digits.isdecimal()):
        raise RunError("--rounds must be +N for N more rounds, or the total number of rounds, such as +60 or 90")
    rounds = int(digits) + (run.trained if text.startswith("+") else 0)
    if rounds <= run.trained:
        raise RunError(f"{run.name} has trained for {run.trained:,} rounds; ask for more, such as --rounds +60")
    return rounds


def continue_run(
    run: Run,
    *,
    rounds: int,
    runs: Path | None = None,
    save_every: int = SAVE_EVERY,
    watch: Watcher | None = None,
    processes: int | None = 1,
) -> Run:
    """Return the run with this many training rounds in total.

    A task fixes its number of rounds, so more of them require a new task: it takes over the model, the optimiser's
    state and everyone's private part, and its rates follow its own schedule. An interrupted run without additional
    rounds continues with the same task.
    """
    if run.scenario.noise is not None:
        raise RunError("the noise of a private run depends on its number of rounds; start a new run with more rounds")
    before, scenario, continued = run.standing(), _with_rounds(run.scenario, rounds), [*run.continued]
    if rounds != run.scenario.rounds or run.stopped:
        continued.append(Stretch(len(run.rows), run.scenario.rounds))
    world = world_of(scenario, before[0].world.ratings)
    sessions = len(before) * (rounds - run.trained) * scenario.cohort
    with Processes(count_for(sessions) if processes is None else processes) as shared:
        engines = [Engine(world, way=engine.way, processes=shared) for engine in before]
        for old, new in zip(before, engines, strict=True):
            carry_over(old, new)
        longer = replace(
            run, scenario=scenario, task_id=world.task.task_id.hex(), continued=continued, engines=engines, final=None
        )
        advance(longer, runs=runs, save_every=save_every, watch=watch)
    return longer


def add_plain(run: Run, *, runs: Path | None = None, watch: Watcher | None = None, processes: int | None = 1) -> Run:
    """Return the run with a plain run added: the same rounds without any protection, from the same seeds."""
    if run.way == PLAIN:
        raise RunError(f"{run.name} is a plain run; compare a private one")
    first = run.standing()[0]
    table: list[Row] = []
    engine: Engine | None = None
    with Processes(count_for(len(run.rows) * run.scenario.cohort) if processes is None else processes) as shared:
        for until, rounds in [*run.continued, Stretch(len(run.rows), run.scenario.rounds)]:
            world = world_of(_with_rounds(run.scenario, rounds), first.world.ratings)
            following = Engine(world, way=PLAIN, processes=shared)
            if engine is not None:
                if engine.rounds in {back.round for back in run.returns}:
                    engine.return_to_best()
                carry_over(engine, following)
            engine = following
            while engine.rounds < until:
                table.append(engine.step())
                if watch is not None:
                    watch(table[-1])
        if engine is not None:
            settle(run, engine)
    compared = replace(run, plain=table, engines=[first] if engine is None else [first, engine])
    if runs is not None:
        compared.save(runs)
    return compared


def _with_rounds(scenario: Scenario, rounds: int) -> Scenario:
    return replace(scenario, recipe=replace(scenario.recipe, rounds=rounds))
