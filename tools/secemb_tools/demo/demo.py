"""The whole product in a minute: two servers, a few hundred devices, a model that learns, and who saw what."""

import asyncio
import json
import signal
import tempfile
from collections.abc import Coroutine
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter
from typing import Any

from rich.console import Console

from secemb_sdk.home.files import write_file
from secemb_tools.demo.course import Course
from secemb_tools.demo.live import View
from secemb_tools.demo.page import page
from secemb_tools.demo.summary import Ending, show
from secemb_tools.demo.workspace import workspace
from secemb_tools.errors import OperationError
from secemb_tools.local import Pair
from secemb_tools.simulation.scenario import ScenarioWorld
from secemb_tools.transport import Transport

INTERRUPTED = 130
PAGE = "/ui"  # the operator's page on each server


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """What somebody wants to see."""

    world: ScenarioWorld
    out: Path  # the report
    transport: Transport = Transport.RELAYED
    keep: bool = False
    as_json: bool = False


def run(request: Request) -> int:
    """Run the demonstration; return 0 if all is as it must be, 1 if not, 130 after Ctrl-C."""
    # With JSON on stdout everything for people goes to stderr.
    console = Console(stderr=request.as_json, highlight=False)
    _make_room(request.out)
    try:
        ending = asyncio.run(_stopped_by_signals(_demonstrate(console, request)))
    except asyncio.CancelledError:
        console.print("Stopped: nothing is left running, no file is left behind.")
        return INTERRUPTED
    return 0 if ending.good else 1


def _make_room(out: Path) -> None:
    """See that the report can be written, before a minute is spent on it."""
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=out.parent):
            pass
    except OSError as error:
        raise OperationError(f"no file can be made in {out.parent} ({error.strerror}); name another --out") from None
    if out.is_dir():
        raise OperationError(f"{out} is a directory; name a file in it with --out")


async def _stopped_by_signals(demonstration: Coroutine[Any, Any, Ending]) -> Ending:
    """Let a signal end the demonstration at its next wait; a second one does not disturb the tidying up."""
    task, loop = asyncio.ensure_future(demonstration), asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        loop.add_signal_handler(number, lambda: task.cancelling() or task.cancel())
    return await task


async def _demonstrate(console: Console, request: Request) -> Ending:
    started, world = perf_counter(), request.world
    _introduce(console, request)
    with workspace() as folder:
        every, identity = world.scenario.evaluate_every, world.relay_identity
        course = Course(world, Pair(folder, world.task, evaluate_every=every, identity=identity), request.transport)
        try:
            ending = await _run(console, course, folder, started)
            _report(console, request, ending)
            if request.keep:
                await _stay_up(console, course.pair)
        finally:
            course.pair.stop()
    return ending


async def _run(console: Console, course: Course, folder: Path, started: float) -> Ending:
    with View(console, rounds=course.world.scenario.rounds) as view:
        for pause in course.pair.starting():
            await asyncio.sleep(pause)
        _say_where(console, course.pair)
        view.say("devices take part")
        await course.run(view, folder / "devices")
        view.say("the same without secrecy")
        return await course.end(started)


_WAYS = {
    Transport.RELAYED: "They talk to server 0 alone; what is for server 1 is sealed to it.",
    Transport.DIRECT: "They talk to both servers.",
}


def _introduce(console: Console, request: Request) -> None:
    world = request.world
    scenario, geometry = world.scenario, world.task.geometry
    console.print(
        f"[bold]{scenario.devices:,} devices, {world.task.items:,} items, two servers that must not collude.[/bold]\n"
        f"In each round {scenario.cohort} devices read their rows and add their gradients, through {geometry.slots} "
        f"slots each; every {_ordinal(scenario.evaluate_every)} round measures the fleet, privately too. "
        f"{_WAYS[request.transport]}\n",
        soft_wrap=True,
    )


def _say_where(console: Console, pair: Pair) -> None:
    for server in pair.servers:
        place = f"[link={server.url}{PAGE}]{server.url}{PAGE}[/link]"
        console.print(f"server {server.role}  {place}  operator token {server.operator_token}", soft_wrap=True)


def _report(console: Console, request: Request, ending: Ending) -> None:
    show(console, ending)
    write_file(request.out, page(ending).encode())
    console.print(f"report in {request.out}", soft_wrap=True)
    if request.as_json:
        print(json.dumps(ending.as_json(), indent=2), flush=True)


async def _stay_up(console: Console, pair: Pair) -> None:
    _say_where(console, pair)
    console.print("Both servers stay up until Ctrl-C.")
    with suppress(asyncio.CancelledError):
        await asyncio.Event().wait()


def _ordinal(number: int) -> str:
    return {2: "second", 3: "third"}.get(number, f"{number}th")
