"""`secemb relay-key`."""

from pathlib import Path
from typing import Annotated

import typer

from secemb_tools import output
from secemb_tools.cli.options import AsJson, ConfigFile, refusals

app = typer.Typer(help="The keys that devices seal to, on server 1.", no_args_is_help=True)


@app.command()
def rotate(
    config: ConfigFile = Path("secemb.toml"),
    lead: Annotated[int, typer.Option(min=0, help="Seconds until the new key is announced.")] = 0,
    overlap: Annotated[int, typer.Option(min=0, help="Seconds that the key before is still opened after that.")] = 3600,
    days: Annotated[int, typer.Option(min=1, max=3650, help="Days that the new key is used.")] = 90,
    json: AsJson = False,
) -> None:
    """Make the next key; a running server takes it over by itself. With --overlap 0 the old one ends at once."""
    from secemb_tools.operate import relay_keys
    from secemb_tools.operate.settings import settings_at

    with refusals():
        made = relay_keys.rotate(settings_at(config), lead=lead, overlap=overlap, days=days)
        output.show_facts(made, as_json=json)


@app.command("list")
def list_(config: ConfigFile = Path("secemb.toml"), json: AsJson = False) -> None:
    """Print the name, state and times of every key, and nothing secret."""
    from secemb_tools.operate import relay_keys
    from secemb_tools.operate.settings import settings_at

    with refusals():
        found = relay_keys.list_all(settings_at(config))
        output.show_rows(["key_id", "state", "not_before", "not_after"], found, as_json=json)
