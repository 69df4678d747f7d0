"""`secemb backup` and `secemb restore`: one server's ledger and data in one file."""

import asyncio
from pathlib import Path
from typing import Annotated

import typer

from secemb_tools import output
from secemb_tools.cli.options import AsJson, ConfigFile, refusals


def backup(
    file: Annotated[Path, typer.Argument(help="The file to write.")],
    config: ConfigFile = Path("secemb.toml"),
    json: AsJson = False,
) -> None:
    """Write the ledger, without what devices sent, and the model to a file, as of one moment; the server may run."""
    from secemb_tools.operate.backup import back_up
    from secemb_tools.operate.settings import settings_at

    with refusals():
        with output.busy("writing the backup"):
            facts = asyncio.run(back_up(settings_at(config), file))
        output.show_facts(facts, as_json=json)
        output.note(f"Keep {facts['not_included']} of the server's directory separately: they hold its keys.")


def restore(
    file: Annotated[Path, typer.Argument(help="A file that `secemb backup` wrote.")],
    config: ConfigFile = Path("secemb.toml"),
    json: AsJson = False,
) -> None:
    """Put a backup into a server without a ledger; a round that was open then is aborted."""
    from secemb_tools.operate.backup import restore as restore_backup
    from secemb_tools.operate.settings import settings_at

    with refusals():
        with output.busy("reading the backup"):
            facts = asyncio.run(restore_backup(settings_at(config), file))
        output.show_facts(facts, as_json=json)
        output.note("Run secemb check before you start the server: it says whether the other server has gone on.")
