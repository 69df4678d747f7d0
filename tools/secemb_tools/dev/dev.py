"""`secemb dev`: two servers on this machine, and helper devices that fill the rounds of a single real device."""

import asyncio
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console

from secemb_party.settings import load_settings
from secemb_shared.messages.spec import NEXT
from secemb_tools import output
from secemb_tools.dev.connection import Connection
from secemb_tools.dev.participants import Helpers, with_rounds_to_go
from secemb_tools.dev.web import Site, address_of, check_built
from secemb_tools.errors import OperationError
from secemb_tools.local import Pair
from secemb_tools.local.pair import PORTS
from secemb_tools.local.process import free_ports, is_free, stopped_by_signals, workspace
from secemb_tools.operate.tokens import create_all
from secemb_tools.simulation.scenario import MADE_UP, ScenarioWorld

_PREFIX = "secemb-dev-"
_OWN = "yours"  # the name of the developer's token


@dataclass(frozen=True, slots=True, kw_only=True)
class DevOptions:
    """What to run."""

    world: ScenarioWorld
    warm_up: int = 0  # rounds with helpers only, before anyone joins
    port: int | None = None  # of server 0; the following ones are used too. None: free ones
    tls: bool = False
    web: bool = False  # a page with a device
    as_json: bool = False


def run(options: DevOptions) -> int:
    """Run the pair until Ctrl-C, which is the normal way to stop it: the exit code is 0."""
    console = Console(stderr=options.as_json, highlight=False)
    try:
        asyncio.run(stopped_by_signals(_serve(console, options)))
    except asyncio.CancelledError:
        console.print("Stopped. Both servers have shut down, and all files have been removed.")
    return 0


async def _serve(console: Console, options: DevOptions) -> None:
    world = with_rounds_to_go(options.world)
    page_port = _page_port(options) if options.web else None
    with workspace(_PREFIX) as folder, ExitStack() as opened:
        pair = Pair(
            folder,
            world.task,
            evaluate_every=world.scenario.evaluate_every,
            identity=world.relay_identity,
            ports=_ports(options.port),
            open_enrolment=False,
            tls=options.tls,
            catalogue=world.ratings.catalogue,
            allowed_origins=[] if page_port is None else [address_of(page_port)],
        )
        own, *others = await _tokens(pair.servers[0].folder, helpers=world.task.cohort)
        try:
            for pause in pair.starting():
                await asyncio.sleep(pause)
            helpers = Helpers(world=world, pair=pair, folder=folder / "helpers", tokens=others)
            if options.warm_up:
                console.print(f"{options.warm_up} rounds of helpers alone, so that there is something to recommend")
                await pair.supervise(helpers.warm_up(options.warm_up))
            page = None
            if page_port is not None:
                site = Site(pair, page_port)
                opened.enter_context(site.serving())
                page = site.origin
            _introduce(console, Connection(world=world, pair=pair, folder=folder, token=own, page=page), options)
            await pair.supervise(helpers.help(lambda words: console.print(words, soft_wrap=True)))
        finally:
            pair.stop()


def _introduce(console: Console, connection: Connection, options: DevOptions) -> None:
    connection.write_files()
    scenario, cohort = connection.world.scenario, connection.world.task.cohort
    what = "events" if connection.world.task.loss == NEXT else "ratings"
    whose = f"made-up {what}" if scenario.data == MADE_UP else f"{what} of {scenario.data}"
    console.print(
        f"[bold]Two servers on this machine, for your device.[/bold] A round has {cohort} devices: {cohort - 1} "
        f"helpers with {whose} join as soon as yours has joined.\n",
    )
    connection.show(console)
    console.print("\nOne line is printed per round. Press Ctrl-C to stop both servers and remove all files.")
    if options.as_json:
        output.show_json(connection.facts())


async def _tokens(folder: Path, *, helpers: int) -> list[str]:
    """Add enrolment tokens, the developer's first, to the ledger of server 0, which is not running yet."""
    settings = load_settings(folder / "secemb.toml", {})
    made = await create_all(settings, [_OWN, *(f"helper {number}" for number in range(helpers))])
    return [one["token"] for one in made]


def _page_port(options: DevOptions) -> int:
    """Return the port of the page: the one after the servers' ports, or a free one."""
    check_built()
    if options.tls:
        raise OperationError("--web and --tls do not go together: no browser trusts the certificate of --tls")
    if options.world.scenario.model != "mf":
        raise OperationError("--web has a device with matrix factorisation; leave out --model")
    if options.port is None:
        return free_ports(1)[0]
    (port,) = _free([options.port + PORTS])
    return port


def _ports(first: int | None) -> Sequence[int]:
    if first is None:
        return ()
    return _free(range(first, first + PORTS))


def _free(ports: Sequence[int]) -> Sequence[int]:
    for port in ports:
        if not is_free(port):
            raise OperationError(
                f"port {port} is in use; choose another --port; the {PORTS - 1} ports after it must be free too"
            )
    return ports
