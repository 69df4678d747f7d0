"""One server, from its directory to its process: `secemb init`, `check`, `serve`, `backup`, `status` and others."""

import asyncio
import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from secemb_tools import output
from secemb_tools.cli.options import INTERRUPTED, REFUSED, AsJson, AuthorityFile, ConfigFile, refusals

config_app = typer.Typer(help="The settings of a server.", no_args_is_help=True)
ledger_app = typer.Typer(help="The database of a server.", no_args_is_help=True)

Host = Annotated[str, typer.Option(help="Host name or address at which the other server reaches this one.")]
Servers = Annotated[list[str], typer.Option("--server", help="Address of a server's operator API; repeat it for both.")]
TokenFiles = Annotated[
    list[Path] | None,
    typer.Option(
        "--token-file", help="File with an operator token, one per --server; default: the variable OPERATOR_TOKEN."
    ),
]


def init(
    role: Annotated[int, typer.Option(min=0, max=1, help="0 leads the rounds, 1 responds.")],
    dir: Annotated[Path, typer.Option(help="The server's directory; it must be empty or not exist yet.")],
    host: Host,
    bind: Annotated[str, typer.Option(help="Address on which to listen for devices.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=1, max=65535, help="Port on which to listen for devices.")] = 8440,
    peer_bind: Annotated[str, typer.Option(help="Role 1: address on which to listen for server 0.")] = "0.0.0.0",  # noqa: S104
    peer_port: Annotated[int, typer.Option(min=1, max=65535, help="Role 1: port for server 0.")] = 8441,
    operator_port: Annotated[int, typer.Option(min=1, max=65535, help="Port of the operator's page and API.")] = 8442,
    metrics_port: Annotated[int, typer.Option(min=1, max=65535, help="Port for Prometheus.")] = 8443,
    json: AsJson = False,
) -> None:
    """Create a server's directory with settings, a key and certificate for the peer channel, and an operator token."""
    from secemb_tools.operate.directory import Addresses, install

    with refusals():
        at = Addresses(
            host=host,
            bind=bind,
            port=port,
            peer_bind=peer_bind,
            peer_port=peer_port,
            operator_port=operator_port,
            metrics_port=metrics_port,
        )
        output.show_facts(asdict(install(dir, role, at)), as_json=json)
        output.note("The operator token (named 'first') is not shown again; keep it in a password manager.")


def check(
    dir: Annotated[Path, typer.Argument(help="The server's directory, or its settings file.")] = Path("secemb.toml"),
    config: Annotated[Path | None, typer.Option(help="The settings file, instead of the directory.")] = None,
    offline: Annotated[bool, typer.Option("--offline", help="Do not call the other server.")] = False,
    ca: AuthorityFile = None,
    json: AsJson = False,
) -> None:
    """Report what would keep this server from running, and how to fix it. Exits with code 1 if anything would."""
    from secemb_tools.operate.check import report

    with refusals():
        sound = asyncio.run(report(config or dir, offline=offline, ca=ca, as_json=json))
    raise typer.Exit(0 if sound else REFUSED)


def serve(
    config: ConfigFile = Path("secemb.toml"),
    migrate: Annotated[
        bool, typer.Option("--migrate", help="Upgrade the ledger, even if [ledger] has migrate = false.")
    ] = False,
    replicas: Annotated[
        int | None,
        typer.Option(min=1, max=64, help="Number of processes of this server to run; needs [ledger] shared = true."),
    ] = None,
    replica: Annotated[
        int | None,
        typer.Option(min=0, max=63, hidden=True, help="Number of this process; `--replicas` gives one to each."),
    ] = None,
) -> None:
    """Run the server until SIGTERM or SIGINT; it answers requests in progress before it stops."""
    from secemb_tools.operate import settings
    from secemb_tools.operate.supervisor import supervise

    with refusals():
        variables = {"SECEMB_LEDGER__MIGRATE": "true"} if migrate else {}
        found = settings.settings_at(config, **variables)
        if replicas is not None:
            supervise(config, found, replicas, variables=["--migrate"] if migrate else [])
        else:
            settings.serve(found, replica=replica)


@config_app.callback()
def config_group() -> None:
    """The settings of a server."""


@config_app.command("show")
def show_config(
    config: ConfigFile = Path("secemb.toml"),
    origin: Annotated[bool, typer.Option("--origin", help="Show where each value comes from.")] = False,
    json: AsJson = False,
) -> None:
    """Show every setting as the server reads it; secrets are named but not shown."""
    from secemb_tools.operate.settings import settings_with_origins

    with refusals():
        columns = ["setting", "value", *(["origin"] if origin else [])]
        output.show_rows(columns, settings_with_origins(config), as_json=json)


@ledger_app.callback()
def ledger_group() -> None:
    """The database of a server."""


@ledger_app.command()
def upgrade(config: ConfigFile = Path("secemb.toml"), json: AsJson = False) -> None:
    """Create the tables, or upgrade them to this version's schema. This cannot be undone, so make a backup first."""
    from secemb_tools.operate.backup import upgrade_ledger
    from secemb_tools.operate.settings import settings_at

    with refusals():
        asyncio.run(upgrade_ledger(settings_at(config)))
    if json:
        output.show_json({"upgraded": True})
    output.note("The ledger's schema is up to date.")


@ledger_app.command()
def export(
    file: Annotated[Path, typer.Argument(help="The file to write.")],
    config: ConfigFile = Path("secemb.toml"),
    json: AsJson = False,
) -> None:
    """Export a consistent snapshot of the ledger to a file; the server may be running."""
    from secemb_tools.operate.backup import export_ledger
    from secemb_tools.operate.settings import settings_at

    with refusals(), output.busy("writing the ledger"):
        facts = asyncio.run(export_ledger(settings_at(config), file))
    output.show_facts(facts, as_json=json)


@ledger_app.command("import")
def import_(
    file: Annotated[Path, typer.Argument(help="A file that `secemb ledger export` wrote.")],
    config: ConfigFile = Path("secemb.toml"),
    json: AsJson = False,
) -> None:
    """Import an exported ledger into an empty one, SQLite or PostgreSQL. Do not use the old database again."""
    from secemb_tools.operate.backup import import_ledger
    from secemb_tools.operate.settings import settings_at

    with refusals(), output.busy("reading the ledger"):
        facts = asyncio.run(import_ledger(settings_at(config), file))
    output.show_facts(facts, as_json=json)


def backup(
    file: Annotated[Path, typer.Argument(help="The file to write.")],
    config: ConfigFile = Path("secemb.toml"),
    json: AsJson = False,
) -> None:
    """Back up the ledger (without uploads) and the model to a file, as a snapshot; the server may be running."""
    from secemb_tools.operate.backup import back_up
    from secemb_tools.operate.settings import settings_at

    with refusals():
        with output.busy("writing the backup"):
            facts = asyncio.run(back_up(settings_at(config), file))
        output.show_facts(facts, as_json=json)
        output.note(f"Keep {facts['not_included']} from the server's directory separately: they contain its keys.")


def restore(
    file: Annotated[Path, typer.Argument(help="A file that `secemb backup` wrote.")],
    config: ConfigFile = Path("secemb.toml"),
    json: AsJson = False,
) -> None:
    """Restore a backup to a server without a ledger; a round that was open at the time is aborted."""
    from secemb_tools.operate.backup import restore as restore_backup
    from secemb_tools.operate.settings import settings_at

    with refusals():
        with output.busy("reading the backup"):
            facts = asyncio.run(restore_backup(settings_at(config), file))
        output.show_facts(facts, as_json=json)
        output.note("Run secemb check before you start the server: it shows whether the other server is ahead.")


def status(
    server: Servers = ["http://127.0.0.1:8442"],  # noqa: B006 (Typer copies it)
    token_file: TokenFiles = None,
    ca: AuthorityFile = None,
    watch: Annotated[bool, typer.Option("--watch", help="Refresh until Ctrl-C.")] = False,
    every: Annotated[float, typer.Option(min=0.1, help="With --watch: seconds between updates.")] = 2.0,
    times: Annotated[int | None, typer.Option(min=1, help="With --watch: stop after this many updates.")] = None,
    json: AsJson = False,
) -> None:
    """Show the state of one or both servers: round, model, and whether they agree. Exits with code 1 on a problem."""
    from secemb_tools.operate.operator_api import OperatorClient, tokens_for
    from secemb_tools.operate.status import is_healthy, picture, read_status, watch_status

    with refusals(), ExitStack() as opened:
        tokens = tokens_for(len(server), token_file or [])
        clients = [opened.enter_context(OperatorClient(*one, ca=ca)) for one in zip(server, tokens, strict=True)]
        if watch:
            last = watch_status(lambda: read_status(clients), _ticks(every, times), as_json=json)
            if last is None:
                raise typer.Exit(INTERRUPTED)
        else:
            last = read_status(clients)
            if json:
                output.show_json(last)
            else:
                output.show(picture(last))
    raise typer.Exit(0 if is_healthy(last) else REFUSED)


def _ticks(every: float, times: int | None) -> Iterator[int]:
    """Yield before each update, with pauses between them."""
    number = 0
    while times is None or number < times:
        if number:
            time.sleep(every)
        yield number
        number += 1
