"""`secemb demo`: two servers, a few hundred devices, a model that learns, and what each server saw."""

import asyncio
import json
import tempfile
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter

from rich.console import Console

from secemb_sdk.home.files import write_file
from secemb_tools.demo.live import LiveView
from secemb_tools.demo.report import render_report
from secemb_tools.demo.result import WHAT, DemoResult, data_words, show
from secemb_tools.demo.run import DemoRun
from secemb_tools.dev.connection import PAGE, Connection
from secemb_tools.dev.participants import Helpers, with_rounds_to_go
from secemb_tools.errors import OperationError
from secemb_tools.local import Pair
from secemb_tools.local.process import stopped_by_signals, workspace
from secemb_tools.simulation.scenario import ScenarioWorld
from secemb_tools.transport import Transport

INTERRUPTED = 130
_PREFIX = "secemb-demo-"


@dataclass(frozen=True, slots=True, kw_only=True)
class DemoOptions:
    """What to run, and where the report goes."""

    world: ScenarioWorld
    out: Path  # the report
    transport: Transport = Transport.RELAYED
    keep: bool = False
    as_json: bool = False


def run(options: DemoOptions) -> int:
    """Run the demonstration; return 0 if all checks passed, 1 if not, 130 after Ctrl-C."""
    # With JSON on stdout, everything else goes to stderr.
    console = Console(stderr=options.as_json, highlight=False)
    _check_writable(options.out)
    try:
        result = asyncio.run(stopped_by_signals(_demonstrate(console, options)))
    except asyncio.CancelledError:
        console.print("Stopped. Both servers have shut down, and all files have been removed.")
        return INTERRUPTED
    return 0 if result.good else 1


def _check_writable(out: Path) -> None:
    """Check that the report can be written before spending a minute on it."""
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=out.parent):
            pass
    except OSError as error:
        raise OperationError(f"cannot write to {out.parent} ({error.strerror}); choose another --out") from None
    if out.is_dir():
        raise OperationError(f"{out} is a directory; use --out with a file in it")


async def _demonstrate(console: Console, options: DemoOptions) -> DemoResult:
    started, world = perf_counter(), with_rounds_to_go(options.world) if options.keep else options.world
    _introduce(console, options)
    with workspace(_PREFIX) as folder:
        pair = Pair(
            folder,
            world.task,
            evaluate_every=world.scenario.evaluate_every,
            identity=world.relay_identity,
            catalogue=world.ratings.catalogue if options.keep or world.task.catalogue else None,
        )
        running = DemoRun(world, pair, options.transport)
        try:
            result = await _run(console, running, folder, started)
            _report(console, options, result)
            if options.keep:
                await _stay_up(console, running, folder)
        finally:
            running.pair.stop()
    return result


async def _run(console: Console, running: DemoRun, folder: Path, started: float) -> DemoResult:
    with LiveView(console, rounds=running.world.scenario.all_rounds) as view:
        for pause in running.pair.starting():
            await asyncio.sleep(pause)
        _show_addresses(console, running.pair)
        view.say("devices take part")
        await running.run(view, folder / "devices")
        view.say("the same rounds without protection")
        return await running.finish(started)


_TRANSPORTS = {
    Transport.RELAYED: "Devices call server 0 only; it forwards their encrypted messages to server 1.",
    Transport.DIRECT: "Devices call both servers.",
}


def _introduce(console: Console, options: DemoOptions) -> None:
    world = options.world
    scenario, geometry = world.scenario, world.task.geometry
    console.print(
        f"{WHAT} {data_words(scenario)}\n\n"
        f"[bold]{scenario.devices:,} devices, {world.task.items:,} items, two servers that must not collude.[/bold]\n"
        f"In each round {scenario.cohort} devices read their rows and add their gradients, through {geometry.slots} "
        f"slots each; every {_ordinal(scenario.evaluate_every)} round privately measures the fleet's error. "
        f"{_TRANSPORTS[options.transport]}\n",
    )


def _show_addresses(console: Console, pair: Pair) -> None:
    for server in pair.servers:
        place = f"[link={server.operator_url}{PAGE}]{server.operator_url}{PAGE}[/link]"
        console.print(f"server {server.role}  {place}  operator token {server.operator_token}", soft_wrap=True)


def _report(console: Console, options: DemoOptions, result: DemoResult) -> None:
    show(console, result)
    write_file(options.out, render_report(result).encode())
    console.print(f"report in {options.out}", soft_wrap=True)
    if options.as_json:
        print(json.dumps(result.as_json(), indent=2), flush=True)


async def _stay_up(console: Console, running: DemoRun, folder: Path) -> None:
    """Let real devices take part until Ctrl-C; the demonstration's devices fill their rounds."""
    world, pair = running.world, running.pair
    connection = Connection(world=world, pair=pair, folder=folder)
    connection.write_files()
    console.print("\n[bold]The task has rounds left for a device of your own.[/bold]")
    connection.show(console)
    cohort = world.task.cohort
    console.print(
        f"\nBoth servers keep running until Ctrl-C. A round needs {cohort} devices: as soon as yours has joined, "
        f"{cohort - 1} of the demonstration's devices join too."
    )
    helpers = Helpers(world=world, pair=pair, folder=folder / "devices", transport=running.transport)
    with suppress(asyncio.CancelledError):
        await pair.supervise(helpers.help(lambda words: console.print(words, soft_wrap=True)))


def _ordinal(number: int) -> str:
    return {2: "second", 3: "third"}.get(number, f"{number}th")
