"""`secemb config`."""

from pathlib import Path
from typing import Annotated

import typer

from secemb_tools import output
from secemb_tools.cli.options import AsJson, ConfigFile, refusals

app = typer.Typer(help="The settings of one server.", no_args_is_help=True)


@app.callback()
def group() -> None:
    """The settings of one server."""


@app.command()
def show(
    config: ConfigFile = Path("secemb.toml"),
    origin: Annotated[bool, typer.Option("--origin", help="Say where each value comes from.")] = False,
    json: AsJson = False,
) -> None:
    """Print every setting as the server would have it; what is secret is named, and never shown."""
    from secemb_tools.operate.settings import settings_with_origins

    with refusals():
        columns = ["setting", "value", *(["origin"] if origin else [])]
        output.show_rows(columns, settings_with_origins(config), as_json=json)
