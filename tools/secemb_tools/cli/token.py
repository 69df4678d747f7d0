"""`secemb token`."""

import asyncio
from pathlib import Path
from typing import Annotated

import typer

from secemb_tools import output
from secemb_tools.cli.options import AsJson, ConfigFile, refusals

app = typer.Typer(help="Who may take part: enrolment tokens on server 0.", no_args_is_help=True)


@app.command()
def create(
    names: Annotated[list[str], typer.Argument(help="A name for each token; a name is used once.")],
    config: ConfigFile = Path("secemb.toml"),
    json: AsJson = False,
) -> None:
    """Make tokens and print them: the only time that they can be seen."""
    from secemb_tools.operate import tokens
    from secemb_tools.operate.settings import settings_at

    with refusals():
        made = asyncio.run(tokens.create(settings_at(config), names))
        output.show_rows(["name", "token"], made, as_json=json)


@app.command("list")
def list_(config: ConfigFile = Path("secemb.toml"), json: AsJson = False) -> None:
    """Print names, hashes and dates."""
    from secemb_tools.operate import tokens
    from secemb_tools.operate.settings import settings_at

    with refusals():
        found = asyncio.run(tokens.list_all(settings_at(config)))
        output.show_rows(["name", "hash", "created", "revoked"], found, as_json=json)


@app.command()
def revoke(
    name: Annotated[str, typer.Argument(help="The name, or the first 8 or more digits of the hash.")],
    config: ConfigFile = Path("secemb.toml"),
    json: AsJson = False,
) -> None:
    """Let a token open the door no more; this cannot be undone."""
    from secemb_tools.operate import tokens
    from secemb_tools.operate.settings import settings_at

    with refusals():
        output.show_facts(asyncio.run(tokens.revoke(settings_at(config), name)), as_json=json)
