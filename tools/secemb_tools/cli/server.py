"""`secemb init`, `check`, `serve`, `config` and `ledger`: one server, from its directory to its process."""

import asyncio
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from secemb_tools import output
from secemb_tools.cli.options import REFUSED, AsJson, AuthorityFile, ConfigFile, refusals

config_app = typer.Typer(help="The settings of a server.", no_args_is_help=True)
ledger_app = typer.Typer(help="The database of a server.", no_args_is_help=True)

Host = Annotated[str, typer.Option(help="Name or address by which the other server reaches this one.")]


def init(
    role: Annotated[int, typer.Option(min=0, max=1, help="0 leads the rounds, 1 responds.")],
    dir: Annotated[Path, typer.Option(help="The server's directory; it must be empty or not exist.")],
    host: Host,
    bind: Annotated[str, typer.Option(help="Address on which to listen for devices.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=1, max=65535, help="Port on which to listen for devices.")] = 8440,
    peer_bind: Annotated[str, typer.Option(help="Role 1: address on which to listen for server 0.")] = "0.0.0.0",  # noqa: S104
    peer_port: Annotated[int, typer.Option(min=1, max=65535, help="Role 1: port for server 0.")] = 8441,
    operator_port: Annotated[int, typer.Option(min=1, max=65535, help="Port of the operator's page and API.")] = 8442,
    metrics_port: Annotated[int, typer.Option(min=1, max=65535, help="Port for Prometheus.")] = 8443,
    json: AsJson = False,
) -> None:
    """Create a server's directory: settings, a key and certificate for the peer channel, an operator token."""
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
        output.note("The operator token, named first, is not shown again; keep it in a password store.")


def check(
    dir: Annotated[Path, typer.Argument(help="The server's directory, or its settings file.")] = Path("secemb.toml"),
    config: Annotated[Path | None, typer.Option(help="The settings file, instead of the directory.")] = None,
    offline: Annotated[bool, typer.Option("--offline", help="Do not call the other server.")] = False,
    ca: AuthorityFile = None,
    json: AsJson = False,
) -> None:
    """Find what would keep this server from running, and how to fix it; exit code 1 if there is anything."""
    from secemb_tools.operate.check import report

    with refusals():
        sound = asyncio.run(report(config or dir, offline=offline, ca=ca, as_json=json))
    raise typer.Exit(0 if sound else REFUSED)


def serve(
    config: ConfigFile = Path("secemb.toml"),
    migrate: Annotated[bool, typer.Option("--migrate", help="Upgrade the ledger, whatever [ledger] says.")] = False,
) -> None:
    """Run the server until SIGTERM or SIGINT; requests in progress are answered first."""
    from secemb_tools.operate import settings

    with refusals():
        variables = {"SECEMB_LEDGER__MIGRATE": "true"} if migrate else {}
        settings.serve(settings.settings_at(config, **variables))


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
    """Create the tables, or upgrade them to this version's schema. There is no way back: make a backup first."""
    from secemb_tools.operate.ledger_file import upgrade_ledger
    from secemb_tools.operate.settings import settings_at

    with refusals():
        asyncio.run(upgrade_ledger(settings_at(config)))
    if json:
        output.show_json({"upgraded": True})
    output.note("The ledger has this version's schema.")


@ledger_app.command()
def export(
    file: Annotated[Path, typer.Argument(help="The file to write.")],
    config: ConfigFile = Path("secemb.toml"),
    json: AsJson = False,
) -> None:
    """Write every row of the ledger to a file, as of one moment; the server may run."""
    from secemb_tools.operate.ledger_file import export_ledger
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
    """Fill an empty ledger, SQLite or PostgreSQL, with an exported one. The old database must not be used again."""
    from secemb_tools.operate.ledger_file import import_ledger
    from secemb_tools.operate.settings import settings_at

    with refusals(), output.busy("reading the ledger"):
        facts = asyncio.run(import_ledger(settings_at(config), file))
    output.show_facts(facts, as_json=json)
