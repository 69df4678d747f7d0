"""`secemb pair`."""

from pathlib import Path
from typing import Annotated

import typer

from secemb_tools import output
from secemb_tools.cli.options import AsJson, refusals

app = typer.Typer(help="Exchange public material with the other operator.", no_args_is_help=True)
Directory = Annotated[Path, typer.Argument(help="This server's directory.")]


@app.command()
def export(dir: Directory) -> None:
    """Print this server's pair file, and to stderr what to read to the other operator."""
    from secemb_tools.operate.pairing import dump, export_pair, spoken_facts

    with refusals():
        pair = export_pair(dir)
        typer.echo(dump(pair), nl=False)
        _note(spoken_facts(pair))


@app.command("import")
def import_(
    dir: Directory,
    file: Annotated[Path, typer.Argument(help="The other server's pair file.")],
    replace: Annotated[bool, typer.Option("--replace", help="Replace what an earlier pair file brought.")] = False,
    json: AsJson = False,
) -> None:
    """Take over the other server's pair file; then compare the printed fingerprints with its operator."""
    from secemb_tools.operate.pairing import import_pair, spoken_facts

    with refusals():
        output.show_facts(spoken_facts(import_pair(dir, file, replace=replace)), as_json=json)
        output.note("Compare these by telephone: a pair file that was altered on the way lets somebody else in.")


def _note(facts: dict[str, object]) -> None:
    for name, value in facts.items():
        output.note(f"{name.replace('_', ' '):12} {value}")
