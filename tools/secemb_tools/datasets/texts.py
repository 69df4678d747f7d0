"""Texts of people as a training set for language models: each word is an event, in the order of the text.

    JSON lines   {"user": …, "text": …} or {…, "texts": […]}; a line with a list and no user is a separate person
    tables       columns user and text, and time if there is one; other names with --columns user=…,item=…

Before the vocabulary is made, texts are held out from all devices: all texts of some people, and some of the others'.
"""

import json
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import polars as pl

from secemb_sdk.words import END, SPECIAL, Vocabulary, split_words
from secemb_shared.catalogue import Catalogue
from secemb_shared.randomness import Indices
from secemb_tools.datasets.columns import known_columns, parse_columns
from secemb_tools.datasets.junk import SHARE, ReadReport, find_faults
from secemb_tools.datasets.ratings import RatingSet
from secemb_tools.datasets.table_file import Table, read_table
from secemb_tools.errors import DatasetError

LEAST = 2  # minimum count of a word in the training texts; rarer ones are <unknown>, which is learned from them
OTHER_PEOPLE, OTHER_TEXTS = "other people", "other texts"  # the texts held out
HELD_OUT = 0.1  # share of the people, and share of the texts of the others
_SPLIT = 41  # purpose of a derived seed
_TEXT = ("text", "texts", "speech", "speeches", "message", "messages", "body", "content")
_FILES = (".jsonl", ".ndjson", ".json", ".csv", ".tsv", ".parquet")
_NAME = 80  # characters of a set's name
_FIXES = {
    "no text": "fill in the cell, or name the column with the texts: --columns user=NAME,item=NAME",
    "no user": "fill in the cell, or name the column: --columns user=NAME,item=NAME",
}

Words = list[str]


@dataclass(frozen=True, slots=True)
class Author:
    """A person and the words of each of their texts, in time order."""

    name: str
    texts: list[Words]


def read_texts(
    path: Path,
    *,
    seed: int,
    least: int | None = None,
    columns: Mapping[str, str] | str | None = None,
    junk_share: float = SHARE,
) -> RatingSet:
    """Return the texts of a file, or of a folder with one; `seed` decides which are held out."""
    name = re.sub(r"[^ -~]", "_", path.resolve().stem)[:_NAME]
    path = _file_in(path) if path.is_dir() else path
    given = parse_columns(columns) if isinstance(columns, str) else columns
    table = read_table(path, given or {"item": "text"}, everything=True)
    authors, report = _authors(table, given, junk_share)
    return set_of(name, authors, seed=seed, least=least, report=report)


def _file_in(folder: Path) -> Path:
    """Return the only file with texts in a folder."""
    found = [path for path in sorted(folder.iterdir()) if path.suffix.lower() in _FILES]
    if len(found) != 1:
        raise DatasetError(f"{folder} has {len(found)} files with texts; give the path of the one to read")
    return found[0]


def set_of(
    name: str, authors: Sequence[Author], *, seed: int, least: int | None = None, report: ReadReport | None = None
) -> RatingSet:
    """Return a set of texts: those of devices, the vocabulary, and those held out."""
    least = LEAST if least is None else least
    devices, unseen = _split(authors, seed)
    counts = Counter(word for author in devices for text in author.texts for word in text)
    common = sorted((word for word, count in counts.items() if count >= least), key=lambda one: (-counts[one], one))
    if not common:
        raise DatasetError(
            f"{name} has no word that occurs at least {least} times; give more text, or lower --min-count"
        )
    vocabulary = Vocabulary((*SPECIAL, *common))
    rows = [vocabulary.encode(author.texts) for author in devices]
    items = np.concatenate(rows)
    return RatingSet(
        name=name,
        people=np.repeat(np.arange(len(devices)), [one.size for one in rows]),
        items=items,
        values=np.ones(items.size, dtype=np.float32),
        order=np.arange(items.size),
        user_features=np.zeros((len(devices), 0), dtype=np.uint8),
        item_features=np.zeros((len(vocabulary.words), 0), dtype=np.uint8),
        implicit=True,
        layout="texts",
        catalogue=Catalogue(ids=vocabulary.words),
        user_ids=tuple(author.name for author in devices),
        report=report or ReadReport(),
        unseen={what: np.append(vocabulary.encode(texts), END) for what, texts in unseen.items() if any(texts)},
    )


def texts_in(rows: Indices) -> list[Indices]:
    """Split rows of words into texts at each end; the last one may be unfinished."""
    begins = np.flatnonzero(rows == END)
    if not begins.size:
        return []
    ends = np.append(begins[1:] + 1, rows.size)
    return [rows[begin:end] for begin, end in zip(begins, ends, strict=True) if end - begin > 1]


def _split(authors: Sequence[Author], seed: int) -> tuple[list[Author], dict[str, list[Words]]]:
    """Return the texts of devices, and those held out; a person's only text is not held out."""
    rng = np.random.default_rng([seed, _SPLIT])
    apart = set(rng.permutation(len(authors))[: round(HELD_OUT * len(authors))].tolist())
    devices: list[Author] = []
    unseen: dict[str, list[Words]] = {OTHER_PEOPLE: [], OTHER_TEXTS: []}
    for place, author in enumerate(authors):
        if place in apart:
            unseen[OTHER_PEOPLE] += author.texts
            continue
        count = len(author.texts)
        held = set(np.flatnonzero(rng.random(count) < HELD_OUT).tolist()) if count > 1 else set()
        unseen[OTHER_TEXTS] += [author.texts[one] for one in sorted(held)]
        devices.append(Author(author.name, [text for one, text in enumerate(author.texts) if one not in held]))
    return devices, unseen


def _authors(table: Table, given: Mapping[str, str] | None, share: float) -> tuple[list[Author], ReadReport]:
    columns = _columns(table, given)
    name = pl.col(columns.user) if columns.user else _whole_line(table, columns.text)
    cells = table.cells.with_columns(pl.col(columns.text).alias("written"), name.alias("name"))
    good, report = _without_faults(table.source, cells, share)
    if columns.time is not None:
        good = good.sort(pl.col(columns.time).cast(pl.Float64, strict=False), maintain_order=True)
    if columns.user is None:  # each line is a person, even if two have the same name
        return [Author(who, _texts(written)) for who, written in good.select("name", "written").iter_rows()], report
    found: dict[str, list[Words]] = {}
    for who, written in good.select("name", "written").iter_rows():
        found.setdefault(who, []).extend(_texts(written))
    return [Author(who, texts) for who, texts in found.items()], report


def _without_faults(source: str, cells: pl.DataFrame, share: float) -> tuple[pl.DataFrame, ReadReport]:
    """Return the lines that can be used."""
    no_user = pl.when(pl.col("name").fill_null("") == "").then(pl.lit("no user"))
    no_text = pl.when(pl.col("written").is_null()).then(pl.lit("no text")).otherwise(no_user)
    reason = pl.when(pl.col("fault").is_not_null()).then(pl.col("fault")).otherwise(no_text)
    checked = cells.select("line", reason.alias("reason"), pl.lit(None, pl.String).alias("value"))
    faults = find_faults(source, checked, _FIXES, share=share)
    return cells.filter(checked["reason"].is_null()), ReadReport(lines=cells.height, faults=faults)


@dataclass(frozen=True, slots=True)
class _Columns:
    user: str | None  # None: each line is a person
    text: str
    time: str | None


def _columns(table: Table, given: Mapping[str, str] | None) -> _Columns:
    known = known_columns(table.names, given)
    if given and "item" in given:
        text = known.get("item")
    else:
        text = next((name for name in table.names if name.lower() in _TEXT), None)
    if text is None or (given and "user" in given and "user" not in known):
        raise DatasetError(
            f"{table.source} has no column recognised as text, or lacks the given user column; its columns are "
            f"{', '.join(table.names)}; select them with --columns user=NAME,item=NAME"
        )
    return _Columns(known.get("user"), text, known.get("time"))


def _whole_line(table: Table, text: str) -> pl.Expr:
    """Return the name of a line that is a person: its other columns, or its number."""
    others = [pl.col(name) for name in table.names if name != text]
    return pl.concat_str(others or [pl.col("line").cast(pl.String)], separator=", ", ignore_nulls=True)


def _texts(written: str) -> list[Words]:
    """Return the words of each text in a cell, which has a JSON list of them, or one."""
    found: object = None
    if written.startswith("["):
        with suppress(ValueError):  # in that case it is a text that begins with a bracket
            found = json.loads(written)
    texts = found if isinstance(found, list) and all(isinstance(one, str) for one in found) else [written]
    return [split_words(text) for text in texts]
