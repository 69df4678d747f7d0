"""The operator's commands as Typer sees them; each imports what it needs when it is called."""

import asyncio
from pathlib import Path
from typing import Annotated

import typer

from secemb_tools import output
from secemb_tools.cli import config, model, pair, privacy, relay_key, task, token
from secemb_tools.cli.options import REFUSED, AsJson, ConfigFile, refusals
from secemb_tools.cli.status import status

ledger_app = typer.Typer(help="The database of one server.", no_args_is_help=True)


def register(app: typer.Typer) -> None:
    """Add everything an operator types to the `secemb` command."""
    for command in (init, renew, check, serve, status):
        app.command()(command)
    app.add_typer(pair.app, name="pair")
    app.add_typer(task.app, name="task")
    app.add_typer(token.app, name="token")
    app.add_typer(relay_key.app, name="relay-key")
    app.add_typer(privacy.app, name="privacy")
    app.add_typer(ledger_app, name="ledger")
    app.add_typer(model.app, name="model")
    app.add_typer(config.app, name="config")


def init(
    role: Annotated[int, typer.Option(min=0, max=1, help="0 conducts rounds, 1 answers.")],
    dir: Annotated[Path, typer.Option(help="The server's directory; it must be empty or not there.")],
    host: Annotated[str, typer.Option(help="Name or address under which the other server reaches this one.")],
    bind: Annotated[str, typer.Option(help="Address of the devices' listener.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=1, max=65535, help="Port of the devices' listener.")] = 8440,
    peer_bind: Annotated[str, typer.Option(help="Role 1: address of the peer listener.")] = "0.0.0.0",  # noqa: S104
    peer_port: Annotated[int, typer.Option(min=1, max=65535, help="Role 1: port of the peer listener.")] = 8441,
    json: AsJson = False,
) -> None:
    """Make a server's directory: settings, a key and certificate for the peer channel, an operator token."""
    from secemb_tools.operate.home import Addresses, install

    with refusals():
        at = Addresses(host=host, bind=bind, port=port, peer_bind=peer_bind, peer_port=peer_port)
        made = install(dir, role, at)
    facts = {
        "settings": str(made.settings),
        "certificate": made.fingerprint,
        "operator_token": made.operator_token,
    }
    output.show_facts(facts, as_json=json)
    output.note("The operator token is shown this once; keep it in a password store.")


def renew(
    dir: Annotated[Path, typer.Argument(help="The server's directory.")],
    host: Annotated[str, typer.Option(help="Name or address under which the other server reaches this one.")],
    json: AsJson = False,
) -> None:
    """Replace key and certificate of the peer channel; then exchange pair files again and restart both servers."""
    from secemb_tools.operate.home import renew_certificate

    with refusals():
        output.show_facts({"certificate": renew_certificate(dir, host)}, as_json=json)


def check(
    dir: Annotated[Path, typer.Argument(help="The server's directory, or its settings file.")] = Path("secemb.toml"),
    config: Annotated[Path | None, typer.Option(help="The settings file; instead of the directory.")] = None,
    offline: Annotated[bool, typer.Option("--offline", help="Do not call the other server.")] = False,
    json: AsJson = False,
) -> None:
    """Say what would keep this server from running, and how to fix it; exit code 1 if something would."""
    from secemb_tools.operate.preflight import report

    with refusals():
        sound = asyncio.run(report(config or dir, offline=offline, as_json=json))
    raise typer.Exit(0 if sound else REFUSED)


def serve(
    config: ConfigFile = Path("secemb.toml"),
    migrate: Annotated[bool, typer.Option("--migrate", help="Upgrade the ledger whatever [ledger] says.")] = False,
) -> None:
    """Run the server until SIGTERM or SIGINT; requests that have begun are answered first."""
    from secemb_tools.operate import settings

    with refusals():
        variables = {"SECEMB_LEDGER__MIGRATE": "true"} if migrate else {}
        settings.serve(settings.settings_at(config, **variables))


@ledger_app.command()
def upgrade(config: ConfigFile = Path("secemb.toml"), json: AsJson = False) -> None:
    """Make the tables, or bring them to this version's schema; there is no way back, so back up first."""
    from secemb_party.ledger import Ledger
    from secemb_tools.operate.settings import settings_at

    async def run() -> None:
        settings = settings_at(config)
        settings.data_dir.mkdir(parents=True, exist_ok=True, mode=0o700)
        async with await Ledger.open(settings.ledger_url(), migrate=True) as ledger:
            await ledger.ping()

    with refusals():
        asyncio.run(run())
    if json:
        output.show_json({"upgraded": True})
    output.note("The ledger has this version's schema.")
