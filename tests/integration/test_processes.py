"""A run on several processes: the same result for any number of them, and an end that leaves none behind."""

import multiprocessing
import signal
import subprocess
import sys
from dataclasses import replace
from typing import Any

import pytest
from tests.unit.made_up_ratings import made_up_ratings

from secemb_shared.messages.privacy import RECORD, USER, BudgetLine, Privacy
from secemb_tools import simulate
from secemb_tools.errors import WorkerError
from secemb_tools.simulation.engine import CENTRAL, LOCAL, Engine, Row
from secemb_tools.simulation.processes import Processes, count_for
from secemb_tools.simulation.recipes import Recipe
from secemb_tools.simulation.rounds import PLAIN, PRIVATE
from secemb_tools.simulation.world import Sampled, World, world_for

RATINGS = made_up_ratings(people=40, items=60, count=800)
RECIPE = Recipe(model="mf", rounds=4, cohort=11, capacity=12, dimension=4)


def world_of(model: str, unit: str | None) -> World:
    """Return a world; with a unit of privacy its cohorts are sampled."""
    recipe = replace(RECIPE, model=model)
    if unit is None:
        return world_for(recipe, RATINGS, seed=1)
    privacy = Privacy(unit=unit, delta="0.0001", train=BudgetLine(clip=4096, multiplier="2", epsilon="8"))
    schedule = Sampled(people=RATINGS.person_count, cohort=11, seed=1)
    return world_for(recipe, RATINGS, seed=1, schedule=schedule, privacy=privacy, cohort=40, bound=2**18)


@pytest.fixture(scope="module", params=[2, 3])
def several(request: pytest.FixtureRequest) -> Any:
    with Processes(request.param) as processes:
        yield processes


@pytest.mark.parametrize(
    ("model", "way", "unit", "settings"),
    [
        ("mf", PLAIN, None, {}),
        ("mf", PRIVATE, None, {}),
        ("fm", PLAIN, None, {}),
        ("mf", PRIVATE, USER, {"noise": CENTRAL}),
        ("fm", PLAIN, RECORD, {"noise": CENTRAL}),
        ("mf", PLAIN, USER, {"noise": LOCAL}),
        ("mf", PLAIN, USER, {"noise": LOCAL, "device_by_device": True}),
    ],
)
def test_any_number_of_processes_gives_the_same_run(
    several: Processes, model: str, way: str, unit: str | None, settings: dict[str, Any]
) -> None:
    world = world_of(model, unit)
    one, more = (Engine(world, way=way, processes=processes, **settings) for processes in (Processes(1), several))
    tables: list[list[Row]] = [[engine.step() for _ in range(4)] for engine in (one, more)]
    assert tables[0] == tables[1]
    assert one.rmse(RATINGS) == more.rmse(RATINGS)
    assert (one.counts, one.privates.keys()) == (more.counts, more.privates.keys())


def test_evaluations_and_kept_runs_are_the_same_too(tmp_path: Any) -> None:
    small: dict[str, Any] = {"devices": 24, "cohort": 8, "rounds": 6, "items": 80, "capacity": 20, "dimension": 4}
    one = simulate(**small, compare_plain=True)
    two = simulate(**small, compare_plain=True, processes=2, runs=tmp_path)
    assert one.table() == two.table()
    assert one.rmse is not None


def test_a_device_that_is_counted_twice_would_be_noticed(several: Processes, monkeypatch: pytest.MonkeyPatch) -> None:
    world = world_of("mf", None)
    right = Engine(world, way=PLAIN).step()
    engine = Engine(world, way=PLAIN, processes=several)
    honest = several.take_part

    def twice(devices: Any, part: Any) -> Any:
        outcome = honest(devices, part)
        first = dict(list(part.people.items())[:1])
        outcome.join(honest(devices, replace(part, people=first)))
        return outcome

    monkeypatch.setattr(several, "take_part", twice)
    assert engine.step() != right


def test_a_failure_in_another_process_is_told_with_its_reason() -> None:
    world = world_of("mf", None)
    with Processes(2) as processes:
        engine = Engine(replace(world, recipe=replace(world.recipe, dimension=5)), way="sideways", processes=processes)
        with pytest.raises(WorkerError, match="sideways"):
            engine.step()


def test_a_process_that_ends_is_noticed() -> None:
    with Processes(2) as processes:
        engine = Engine(world_of("mf", None), way=PLAIN, processes=processes)
        engine.step()
        for child in multiprocessing.active_children():
            child.kill()
        with pytest.raises(WorkerError, match="ended unexpectedly"):
            engine.step()


PROGRAM = """
import os, sys
from tests.integration.test_processes import world_of
from secemb_tools.simulation.engine import Engine
from secemb_tools.simulation.processes import Processes
if __name__ == "__main__":
    import multiprocessing
    processes = Processes(2)
    engine = Engine(world_of("mf", None), way="plain", processes=processes)
    engine.step()
    print(*[child.pid for child in multiprocessing.active_children()], flush=True)
    sys.stdin.read()
"""


def test_no_process_stays_when_the_first_one_is_killed() -> None:
    first = subprocess.Popen([sys.executable, "-c", PROGRAM], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert first.stdin is not None
    assert first.stdout is not None
    children = [int(pid) for pid in first.stdout.readline().split()]
    assert len(children) == 2
    first.send_signal(signal.SIGKILL)
    # Its end of the pipe is inherited by nobody else: when all have ended, there is nothing left to read.
    assert first.stdout.read() == ""
    first.wait()
    first.stdin.close()
    first.stdout.close()


def test_short_runs_stay_in_one_process() -> None:
    assert count_for(100) == 1
    assert count_for(10**9) >= 1
