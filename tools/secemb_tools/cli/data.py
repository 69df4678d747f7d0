"""`secemb data`: rating sets."""

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from secemb_tools import output
from secemb_tools.cli.options import AsJson, refusals

app = typer.Typer(help="Rating sets: download them, inspect them, split them.", no_args_is_help=True)
Place = Annotated[Path, typer.Argument(help="A directory, a CSV file, or the name of a downloaded set.")]


class How(StrEnum):
    """Ways to split a set."""

    RANDOM = "random"
    PER_USER = "per-user"
    LEAVE_ONE_OUT = "leave-one-out"


@app.command()
def fetch(
    name: Annotated[str, typer.Argument(help="ml-100k, ml-1m, ml-10m or ml-25m.")],
    into: Annotated[Path, typer.Option(help="The set is stored in a directory of its name in here.")] = Path(
        "build/data"
    ),
    path: Annotated[Path | None, typer.Option(help="Use these files; nothing is downloaded.")] = None,
    source: Annotated[str | None, typer.Option("--from", help="Another URL of the same archive.")] = None,
    md5: Annotated[str | None, typer.Option(help="The archive's MD5, if it is not the published one.")] = None,
    json: AsJson = False,
) -> None:
    """Download a set from its publisher, verify its checksum and unpack it; shows the licence first."""
    from secemb_tools.datasets.download import LICENCE, archive_named, fetch_with_progress
    from secemb_tools.datasets.ratings import describe
    from secemb_tools.datasets.sources import read_named

    with refusals():
        archive_named(name)
        output.note(LICENCE)
        place = path if path is not None else fetch_with_progress(name, into, source=source, md5=md5)
        with output.busy("reading ratings"):
            facts = {"path": str(place), **describe(read_named(name, place))}
        output.show_facts(facts, as_json=json)


@app.command()
def show(path: Place, json: AsJson = False) -> None:
    """Show what a rating set contains."""
    from secemb_tools.datasets.ratings import describe
    from secemb_tools.datasets.sources import read_ratings

    with refusals():
        with output.busy("reading ratings"):
            facts = describe(read_ratings(path))
        output.show_facts(facts, as_json=json)


@app.command("split")
def split_(
    path: Place,
    out: Annotated[Path, typer.Option(help="A new directory, for train.csv and test.csv.")],
    how: Annotated[
        How,
        typer.Option(
            help="random: a share of all ratings; per-user: the same share of each person's; "
            "leave-one-out: each person's last rating."
        ),
    ] = How.PER_USER,
    seed: Annotated[int, typer.Option(min=0, help="The same seed gives the same split.")] = 1,
    test_share: Annotated[float, typer.Option(min=0.01, max=0.99, help="For random and per-user.")] = 0.2,
    json: AsJson = False,
) -> None:
    """Split a set into two CSV files, with people and items numbered from zero."""
    from secemb_tools.datasets.ratings import write_split
    from secemb_tools.datasets.sources import read_ratings

    with refusals():
        with output.busy("splitting ratings"):
            facts = write_split(read_ratings(path), out, how=how.value, seed=seed, test_share=test_share)
        output.show_facts(facts, as_json=json)
