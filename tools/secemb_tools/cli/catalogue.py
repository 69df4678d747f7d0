"""`secemb catalogue`: the items of a task, by their external ids."""

from pathlib import Path
from typing import Annotated

import typer

from secemb_tools import output
from secemb_tools.cli.options import AsJson, refusals
from secemb_tools.errors import OperationError

app = typer.Typer(
    help="Edit the list of a task's items; `secemb task succeed` puts the new list into use.", no_args_is_help=True
)
File = Annotated[Path, typer.Argument(help="A catalogue, or any list of items with a header.")]
Out = Annotated[Path | None, typer.Option(help="Where to write the catalogue; default: replace the file.")]


@app.command()
def show(file: File, json: AsJson = False) -> None:
    """Show how many items a catalogue has, its columns, and the digest by which tasks name it."""
    from secemb_tools.operate.catalogue_edits import describe

    with refusals():
        output.show_facts(describe(file), as_json=json)


@app.command()
def diff(
    old: Annotated[Path, typer.Argument(help="The older catalogue.")],
    new: Annotated[Path, typer.Argument(help="The newer one.")],
    json: AsJson = False,
) -> None:
    """List the items that were added, changed or retired between two catalogues."""
    from secemb_tools.operate.catalogue_edits import differences

    with refusals():
        output.show_rows(["what", "id", "title"], differences(old, new), as_json=json)


@app.command()
def add(
    file: File,
    items: Annotated[Path, typer.Argument(help="The items to add: CSV with a header that names an id column.")],
    out: Out = None,
    json: AsJson = False,
) -> None:
    """Add items, and update the titles of known ones. Repeating it changes nothing, so a nightly job can run it."""
    from secemb_tools.operate import catalogue_edits

    with refusals():
        output.show_facts(catalogue_edits.add(file, items, out), as_json=json)


@app.command()
def retire(
    file: File,
    ids: Annotated[list[str] | None, typer.Argument(help="Ids of the items to retire.")] = None,
    listed: Annotated[Path | None, typer.Option("--from", help="A file with ids: CSV, or one on each line.")] = None,
    out: Out = None,
    force: Annotated[bool, typer.Option("--force", help="Also retire more than half of the items.")] = False,
    json: AsJson = False,
) -> None:
    """Retire items: they are never recommended again, and their rows are removed from the successor's table."""
    from secemb_tools.operate import catalogue_edits

    with refusals():
        names = [*(ids or []), *(catalogue_edits.read_ids(listed) if listed is not None else [])]
        if not names:
            raise OperationError("give the ids of the items to retire, or --from with a file that lists them")
        output.show_facts(catalogue_edits.retire(file, names, out, force=force), as_json=json)
