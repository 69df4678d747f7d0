"""The `secemb` command: every subcommand by name."""

from typing import Annotated

import typer

from secemb_tools import output
from secemb_tools.cli import (
    catalogue,
    control,
    data,
    device,
    keys,
    model,
    operator,
    privacy,
    run,
    server,
    simulate,
    successor,
    task,
    token,
)
from secemb_tools.cli.options import AsJson

app = typer.Typer(
    name="secemb",
    epilog="Exit codes: 0 success; 1 failure, including a failed check; 2 usage error; 130 interrupted by Ctrl-C. "
    "With --json a command prints only JSON to stdout, in the stable format described by "
    "docs/reference/cli.schema.json. There is no telemetry: data is sent only to the servers that you name.",
    no_args_is_help=True,
    add_completion=True,
    pretty_exceptions_show_locals=False,  # they may be keys
)


def _show_version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import version

        typer.echo(f"secemb {version('secemb')}")
        raise typer.Exit


@app.callback()
def options(
    show_version: Annotated[
        bool, typer.Option("--version", help="Show the version and exit.", callback=_show_version, is_eager=True)
    ] = False,
) -> None:
    """Train recommenders on people's devices without learning what they like."""


@app.command()
def kernel(json: AsJson = False) -> None:
    """Show which implementation of the cryptographic kernel is in use."""
    from secemb_tools.kernel import describe, facts

    if json:
        output.show_json(facts())
    else:
        typer.echo(describe())


for command in (
    simulate.demo,
    simulate.dev,
    simulate.simulate,
    task.plan,
    server.init,
    server.check,
    server.serve,
    server.backup,
    server.restore,
    server.status,
    control.drain,
):
    app.command()(command)
task.app.command()(control.pause)
task.app.command()(control.resume)
task.app.command()(successor.succeed)
task.app.command()(successor.agree)
for name, group in {
    "run": run.app,
    "data": data.app,
    "device": device.app,
    "catalogue": catalogue.app,
    "task": task.app,
    "round": control.round_app,
    "pair": keys.pair_app,
    "operator": operator.app,
    "token": token.app,
    "relay-key": keys.relay_key_app,
    "privacy": privacy.app,
    "model": model.app,
    "config": server.config_app,
    "ledger": server.ledger_app,
}.items():
    app.add_typer(group, name=name)


def main() -> None:
    """Run the command line."""
    app(prog_name="secemb")
