"""`secemb data`: rating sets."""

from collections.abc import Mapping
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

from secemb_tools import output
from secemb_tools.cli.options import AsJson, CatalogueFile, ColumnNames, JunkShare, refusals

app = typer.Typer(help="Download, inspect and split rating sets.", no_args_is_help=True)
Place = Annotated[Path, typer.Argument(help="A directory, a file, or the name of a downloaded set.")]


class How(StrEnum):
    """Ways to split a set."""

    RANDOM = "random"
    PER_USER = "per-user"
    LEAVE_LAST_OUT = "leave-last-out"
    BY_TIME = "by-time"
    GIVEN = "given"


@app.command()
def fetch(
    name: Annotated[str, typer.Argument(help="ml-100k, ml-1m, ml-10m or ml-25m.")],
    into: Annotated[Path, typer.Option(help="Where to store the set, in a subdirectory with its name.")] = Path(
        "build/data"
    ),
    path: Annotated[Path | None, typer.Option(help="Use these files instead of downloading the set.")] = None,
    source: Annotated[str | None, typer.Option("--from", help="Another URL for the same archive.")] = None,
    md5: Annotated[str | None, typer.Option(help="MD5 of the archive, if it differs from the published one.")] = None,
    json: AsJson = False,
) -> None:
    """Show the licence of a set, then download it from its publisher, verify its checksum and unpack it."""
    from secemb_tools.datasets.download import LICENCE, archive_named, fetch_with_progress
    from secemb_tools.datasets.sources import read_named
    from secemb_tools.datasets.summary import describe

    with refusals():
        archive_named(name)
        output.note(LICENCE)
        place = path if path is not None else fetch_with_progress(name, into, source=source, md5=md5)
        with output.busy("reading ratings"):
            facts = {"path": str(place), **describe(read_named(name, place))}
        _show(facts, as_json=json)


@app.command()
def show(
    path: Place,
    columns: ColumnNames = None,
    catalogue: CatalogueFile = None,
    junk: JunkShare = 0.01,
    plot: Annotated[Path | None, typer.Option(help="Write an SVG picture of the distributions to this file.")] = None,
    json: AsJson = False,
) -> None:
    """Show counts, distributions, the share kept by several capacities, the time range and invalid lines of a set."""
    from secemb_tools.datasets.sources import read_ratings
    from secemb_tools.datasets.summary import activity_counts, describe, draw

    with refusals():
        with output.busy("reading ratings"):
            ratings = read_ratings(path, columns=columns, catalogue=catalogue, junk_share=junk, quiet=True)
            facts = describe(ratings)
            if plot is not None:
                plot.write_text(draw(ratings), encoding="utf-8")
        _show(facts, as_json=json)
        if not json:
            if not ratings.implicit:
                _show_bars("rating", facts["rating_counts"])
            _show_bars("ratings per person", activity_counts(ratings))
            for sentence in ratings.report.sentences():
                output.note(sentence)


@app.command("split")
def split_(
    path: Place,
    out: Annotated[Path, typer.Option(help="New directory for train.csv, test.csv and catalogue.csv.")],
    how: Annotated[
        How,
        typer.Option(
            help="random: a share of all ratings; per-user: the same share of each person's ratings; "
            "leave-last-out: each person's last rating; by-time: the newest ratings; given: the set's own test "
            "file."
        ),
    ] = How.PER_USER,
    seed: Annotated[int, typer.Option(min=0, help="The same seed gives the same split.")] = 1,
    test_share: Annotated[
        float, typer.Option(min=0.01, max=0.99, help="Share of ratings in test.csv, for random, per-user and by-time.")
    ] = 0.2,
    columns: ColumnNames = None,
    catalogue: CatalogueFile = None,
    junk: JunkShare = 0.01,
    json: AsJson = False,
) -> None:
    """Split a set into two CSV files with its original ids, and write the catalogue of its items."""
    from secemb_tools.datasets.sources import read_ratings
    from secemb_tools.datasets.splits import write_split

    with refusals():
        with output.busy("splitting ratings"):
            ratings = read_ratings(path, columns=columns, catalogue=catalogue, junk_share=junk)
            facts = write_split(ratings, out, how=how.value, seed=seed, test_share=test_share)
        output.show_facts(facts, as_json=json)


def _show(facts: Mapping[str, Any], *, as_json: bool) -> None:
    """Print facts, with groups of figures in one line."""
    if as_json:
        output.show_json(facts)
        return
    plain = {name: value for name, value in facts.items() if not isinstance(value, dict)}
    quantiles, kept, share = facts["ratings_per_person"], facts["kept_by_capacity"], "suggested_capacity_keeps"
    plain["suggested_capacity"] = f"{facts['suggested_capacity']:,}, which keeps {plain.pop(share):.1%}"
    plain |= {
        "ratings_per_person": ", ".join(f"{name}: {value:g}" for name, value in quantiles.items()),
        "kept_by_capacity": ", ".join(f"{name}: {value:.1%}" for name, value in kept.items()),
        "lines_skipped": f"{facts['junk']['skipped']:,} of {facts['junk']['lines']:,}",
        "repeated_pairs": facts["junk"]["duplicates"],
    }
    output.show_facts(plain, as_json=False)


def _show_bars(name: str, counts: Mapping[str, int]) -> None:
    from secemb_tools.datasets.summary import text_bars

    output.show_rows([name, "share"], [{name: one, "share": bar} for one, bar in text_bars(counts)], as_json=False)
