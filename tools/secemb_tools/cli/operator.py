"""`secemb operator`: who may view a server, change its state, or enrol devices."""

import asyncio
from pathlib import Path
from typing import Annotated, Literal

import typer

from secemb_tools import output
from secemb_tools.cli.options import AsJson, ConfigFile, refusals

app = typer.Typer(help="Manage operator tokens: who may view, make changes or enrol devices.", no_args_is_help=True)


@app.command()
def add(
    name: Annotated[str, typer.Argument(help="Whose token it is; a name can be used only once.")],
    role: Annotated[
        Literal["read-only", "admin", "enrol"],
        typer.Option(help="read-only: view everything; admin: do everything; enrol: for an app's backend."),
    ] = "read-only",
    days: Annotated[int | None, typer.Option(min=1, help="Days until it expires; default: never.")] = None,
    config: ConfigFile = Path("secemb.toml"),
    json: AsJson = False,
) -> None:
    """Create an operator token and print it. It cannot be shown again; a running server accepts it at once."""
    from secemb_party.operators import OperatorRole
    from secemb_tools.operate import operator_tokens
    from secemb_tools.operate.settings import settings_at

    with refusals():
        made = asyncio.run(operator_tokens.add(settings_at(config), name, OperatorRole(role), days=days))
        output.show_facts(made, as_json=json)


@app.command("list")
def list_(config: ConfigFile = Path("secemb.toml"), json: AsJson = False) -> None:
    """List operator tokens by name, with roles, states and dates."""
    from secemb_tools.operate import operator_tokens
    from secemb_tools.operate.settings import settings_at

    with refusals():
        found = operator_tokens.list_all(settings_at(config))
        output.show_rows(["name", "role", "state", "created", "expires", "revoked"], found, as_json=json)


@app.command()
def revoke(
    name: Annotated[str, typer.Argument(help="The token's name.")],
    config: ConfigFile = Path("secemb.toml"),
    json: AsJson = False,
) -> None:
    """Revoke an operator token and end its logins immediately. This cannot be undone."""
    from secemb_tools.operate import operator_tokens
    from secemb_tools.operate.settings import settings_at

    with refusals():
        output.show_facts(asyncio.run(operator_tokens.revoke(settings_at(config), name)), as_json=json)


@app.command()
def actions(
    limit: Annotated[int, typer.Option(min=1, help="Number of actions, newest first.")] = 50,
    config: ConfigFile = Path("secemb.toml"),
    json: AsJson = False,
) -> None:
    """List the changes that operators made: who, what, when and why."""
    from secemb_tools.operate import operator_tokens
    from secemb_tools.operate.settings import settings_at

    with refusals():
        found = asyncio.run(operator_tokens.list_actions(settings_at(config), limit))
        output.show_rows(["number", "at", "by", "what", "reason", "data"], found, as_json=json)
