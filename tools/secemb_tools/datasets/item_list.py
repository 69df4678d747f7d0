"""Lists of items with titles: CSV, RecBole's .item, JSON lines or Parquet."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import polars as pl

from secemb_tools.datasets.columns import known_columns, without_type
from secemb_tools.datasets.interactions import Listed
from secemb_tools.datasets.junk import SHARE, find_faults
from secemb_tools.datasets.table_file import Table, read_table
from secemb_tools.errors import DatasetError


def read_items(path: Path, *, share: float = SHARE) -> Listed:
    """Return the items of a file with a header."""
    table = read_table(path, everything=True)
    found = known_columns(table.names)
    plain = {without_type(name).lower(): name for name in table.names}
    item = found.get("item") or plain.get("id")
    if item is None or not table.named:
        raise DatasetError(
            f"{path} has no column recognised as the item id; name its columns in a header, for example item_id,title"
        )
    twice = table.cells.filter(pl.col(item).is_duplicated() & (pl.col(item).fill_null("") != ""))[item]
    if len(twice):
        raise DatasetError(f"{path} lists the id {twice[0]!r} more than once; ids must be unique")
    listed = list_rows(table, item, title=found.get("title"), share=share)
    others = {
        name: column for name, column in listed.others.items() if name != "row"
    }  # of a catalogue: the rows of another set
    return replace(listed, others=others)


def list_rows(
    table: Table,
    item: str,
    *,
    title: str | None = None,
    numbers: Sequence[str] = (),
    share: float = SHARE,
) -> Listed:
    """Return the rows of a table that lists people or items; the columns `numbers` must contain whole numbers."""
    wrong = [pl.when(~pl.col(name).fill_null("").str.contains(r"^\d+$")).then(pl.col(name)) for name in numbers]
    checked = table.cells.with_columns(
        pl.when(pl.col("fault").is_not_null())
        .then(pl.col("fault"))
        .when(pl.col(item).fill_null("") == "")
        .then(pl.lit("no id"))
        .when(pl.coalesce(*wrong, pl.lit(None, pl.String)).is_not_null())
        .then(pl.lit("not a whole number"))
        .alias("reason"),
        pl.coalesce(*wrong, pl.lit(None, pl.String)).alias("value"),
    )
    faults = find_faults(table.source, checked, {}, share=share)
    good = checked.filter(pl.col("reason").is_null()).unique(item, keep="first", maintain_order=True)
    kept = {without_type(name): name for name in table.names if name not in (item, title)}
    return Listed(
        ids=tuple(good[item]),
        titles=() if title is None else tuple(good[title].fill_null("")),
        others={name: tuple(good[column].fill_null("")) for name, column in kept.items()},
        faults=faults,
    )
