"""The `secemb` command and all of its subcommands, as Typer sees them."""

from pathlib import Path
from typing import Annotated

import typer

from secemb_tools import output
from secemb_tools.cli import server as operating
from secemb_tools.cli import simulate as simulating
from secemb_tools.cli.data import app as data_app
from secemb_tools.cli.device import app as device_app
from secemb_tools.cli.options import AsJson, refusals
from secemb_tools.cli.plan import plan

app = typer.Typer(
    name="secemb",
    help="Train recommenders on people's devices without learning what they like.",
    no_args_is_help=True,
    add_completion=True,
    pretty_exceptions_show_locals=False,  # they may be keys
)


@app.command()
def kernel(json: AsJson = False) -> None:
    """Say in one line which implementation does the work."""
    from secemb_tools.kernel import describe, facts

    if json:
        output.show_json(facts())
    else:
        typer.echo(describe())


@app.command(hidden=True)
def reference(
    out: Annotated[Path | None, typer.Option(help="The file to write; without it, print.")] = None,
) -> None:
    """Write the reference of all commands, which is docs/reference/cli.md."""
    from secemb_tools.reference import write_reference

    with refusals():
        write_reference(typer.main.get_command(app), out)


simulating.register(app)
operating.register(app)
app.command()(plan)
app.add_typer(device_app, name="device")
app.add_typer(data_app, name="data")


def main() -> None:
    """Run the command line."""
    app(prog_name="secemb")
