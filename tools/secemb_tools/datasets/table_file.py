"""Tables as columns of text with line numbers: delimited text, JSON lines, Parquet, polars and pandas frames."""

import csv
import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import polars as pl

from secemb_tools.datasets.columns import FIX, Columns, find_columns, guess_columns, known_columns
from secemb_tools.datasets.text import GZIP, PARQUET, ZSTD, file_head, read_lines
from secemb_tools.errors import DatasetError

SEPARATORS = ("::", "\t", ";", "|", ",", " ")
LISTS = "lists"  # one line per user: `user item item …`
SHORT, LONG, OPEN = "too few fields", "too many fields", "a quote is not closed"
_SAMPLE = 1000  # lines that decide the layout of a file
_AGREEMENT = 0.7  # share of lines that must have the same number of fields


@dataclass(frozen=True, slots=True, eq=False)
class Table:
    """Cells as text, with `line`, from 1, and `fault`, which is null for a good line."""

    source: str
    cells: pl.DataFrame
    names: tuple[str, ...]  # of the columns besides `line` and `fault`
    named: bool = True  # line numbers; otherwise numbered from 1

    def columns(self, given: Mapping[str, str] | None = None) -> Columns:
        """Return the roles of the columns."""
        if self.named or given:
            return find_columns(self.source, self.names, given)
        return guess_columns(self.source, self.cells.select(self.names).head(_SAMPLE).rows())


def read_table(path: Path, given: Mapping[str, str] | None = None, *, everything: bool = False) -> Table:
    """Return the table in a file of any known format; for JSON objects, the recognised members, or everything."""
    head = file_head(path)
    if head.startswith(PARQUET):
        try:
            return table_of_frame(pl.read_parquet(path, glob=False), str(path))
        except (pl.exceptions.PolarsError, OSError):
            raise DatasetError(f"{path} is a truncated or corrupted Parquet file; write or download it again") from None
    if head.lstrip(b"\xef\xbb\xbf \r\n\t").startswith(b"{") and not head.startswith((GZIP, ZSTD)):
        return read_json_lines(path, given=given, everything=everything)
    lines = read_lines(path)
    sample = lines["text"].head(_SAMPLE).to_list()
    if sample[0].lstrip().startswith("{"):  # compressed JSON lines
        return read_json_lines(path, given=given, everything=everything)
    if sample[0].lstrip().startswith("["):
        raise DatasetError(f"{path} is a JSON array; write one object per line (jq -c '.[]' does it)")
    separator = _separator(sample, given)
    if separator is None:
        raise DatasetError(f"{path}, line {lines['line'][0]}: no columns found; {FIX}")
    if separator == LISTS:
        return _lists(str(path), lines)
    return _with_header(_delimited(str(path), lines, separator), given)


def read_columns(path: Path, separator: str, names: Sequence[str]) -> Table:
    """Return a table without a header that has these columns; quotes have no meaning in it."""
    return Table(str(path), _fields(read_lines(path), separator, names), tuple(names))


def read_json_lines(
    path: Path, *, given: Mapping[str, str] | None = None, keys: Sequence[str] = (), everything: bool = False
) -> Table:
    """Return members of the objects of a file, one per line: recognised, given, `keys` or all. It is streamed."""
    text = pl.col("text").str.strip_chars().str.strip_prefix("\ufeff")
    lines = pl.scan_lines(path, name="text", glob=False).with_row_index("line", offset=1).filter(text != "")
    try:
        names = list(json.loads(lines.select(text).head(1).collect(engine="streaming").item()))
        wanted = list(keys) or (names if everything else list(known_columns(names, given).values()) or names)
        members = [text.str.json_path_match(f"$['{name}']").alias(name) for name in wanted]
        cells = lines.select("line", pl.lit(None, pl.String).alias("fault"), *members).collect(engine="streaming")
    except (ValueError, OSError, pl.exceptions.PolarsError):
        raise DatasetError(f"{path}, line 1: not a JSON object in UTF-8; write one object per line") from None
    return Table(str(path), cells, tuple(wanted))


def table_of_frame(frame: Any, source: str) -> Table:
    """Return a polars or pandas frame as a table, with row numbers from 1."""
    if not isinstance(frame, pl.DataFrame):
        if not hasattr(frame, "columns"):
            raise DatasetError(f"{type(frame).__name__} is not a rating set; give a path, or a polars or pandas frame")
        frame = pl.DataFrame([_series(str(name), frame[name]) for name in frame.columns])
    if not frame.height:
        raise DatasetError(f"{source} has no rows; {FIX}")
    names = tuple(name for name in frame.columns if not frame.schema[name].is_nested())
    texts = [
        (pl.col(name).dt.epoch("s") if frame.schema[name] in (pl.Date, pl.Datetime) else pl.col(name)).cast(pl.String)
        for name in names
    ]
    cells = frame.select(pl.lit(None, pl.String).alias("fault"), *texts).with_row_index("line", offset=1)
    return Table(source, cells, names)


def _series(name: str, column: Any) -> pl.Series:
    values = column.to_numpy()
    return pl.Series(name, values if values.dtype.kind in "iufbM" else [str(value) for value in values])


def _separator(sample: Sequence[str], given: Mapping[str, str] | None) -> str | None:
    """Return the separator with known names in the first line, or else with the same number of fields in most lines."""
    for separator in SEPARATORS:
        found = known_columns(_split(sample[0], separator), given)
        if "item" in found and found.keys() & {"user", "title"}:
            return separator
    for separator in SEPARATORS:
        fields, count = Counter(len(_split(line, separator)) for line in sample).most_common(1)[0]
        if fields > 1 and count >= _AGREEMENT * len(sample):
            return separator
    numbers = all(cell.isdecimal() for line in sample for cell in line.split())
    return LISTS if numbers and any(" " in line.strip() for line in sample) else None


def _split(line: str, separator: str) -> list[str]:
    if separator == " ":
        return line.split()
    if '"' in line and len(separator) == 1:
        return next(csv.reader([line], delimiter=separator), [])
    return line.split(separator)


def _lists(source: str, lines: pl.DataFrame) -> Table:
    """Return pairs of user and item from lines with a user and all items of this user."""
    words = pl.col("text").str.extract_all(r"\S+")
    pairs = lines.select(
        "line",
        pl.lit(None, pl.String).alias("fault"),
        words.list.first().alias("user"),
        words.list.slice(1).alias("item"),
    )
    return Table(source, pairs.filter(pl.col("item").list.len() > 0).explode("item"), ("user", "item"))


def _delimited(source: str, lines: pl.DataFrame, separator: str) -> Table:
    sample = [len(_split(line, separator)) for line in lines["text"].head(_SAMPLE)]
    width = Counter(sample).most_common(1)[0][0]
    names = [str(place) for place in range(1, width + 1)]
    quoted = len(separator) == 1 and lines["text"].str.contains(rf'(^|[{separator}])\s*"').any()
    cells = _quoted_fields(source, lines, separator, names) if quoted else _fields(lines, separator, names)
    return Table(source, cells, tuple(names), named=False)


def _fields(lines: pl.DataFrame, separator: str, names: Sequence[str]) -> pl.DataFrame:
    """Return the cells of lines without quotes."""
    text = pl.col("text").str.strip_chars().str.replace_all(r"\s+", " ") if separator == " " else pl.col("text")
    cells = text.str.splitn(separator, len(names) + 1).struct.rename_fields([*names, "rest"]).struct.unnest()
    fault = (
        pl.when(pl.col(names[-1]).is_null())
        .then(pl.lit(SHORT))
        .when(pl.col("rest").str.contains(r"\S"))
        .then(pl.lit(LONG))
        .alias("fault")
    )
    return lines.select("line", cells).with_columns(fault, pl.col(names).str.strip_chars()).drop("rest")


def _quoted_fields(source: str, lines: pl.DataFrame, separator: str, names: Sequence[str]) -> pl.DataFrame:
    """Return the cells of lines with quotes, which may contain separators and line ends."""
    begin = 0  # first line of the current row

    def rows() -> Iterator[tuple[int, str | None, *tuple[str | None, ...]]]:
        numbers = lines["line"].to_list()
        reader = csv.reader((line + "\n" for line in lines["text"]), delimiter=separator, skipinitialspace=True)
        nonlocal begin
        for row in reader:
            fault = None if len(row) == len(names) else LONG if any(row[len(names) :]) else None
            if len(row) < len(names):
                fault = OPEN if any("\n" in cell for cell in row) else SHORT
            padded: list[str | None] = [*(cell.strip() for cell in row), *[None] * len(names)]
            yield numbers[begin], fault, *padded[: len(names)]
            begin = reader.line_num

    schema = {"line": pl.UInt32, "fault": pl.String, **dict.fromkeys(names, pl.String)}
    try:
        return pl.DataFrame(list(rows()), schema=schema, orient="row")
    except csv.Error as error:
        raise DatasetError(
            f"{source}, line {lines['line'][begin]}: not CSV ({error}); close the quote that starts there"
        ) from None


def _with_header(table: Table, given: Mapping[str, str] | None) -> Table:
    """Return the table with its first line as the header, if it is one."""
    first = [cell or "" for cell in table.cells.row(0)[table.cells.columns.index("1") :][: len(table.names)]]
    found = known_columns(first, {kind: name for kind, name in (given or {}).items() if not name.isdecimal()})
    listed = "title" in found and ("item" in found or "id" in map(str.lower, first))
    if not (found.keys() >= {"user", "item"} or listed or _are_names(first, table)):
        return table
    names = [name if name and first.index(name) == place else f"column {place + 1}" for place, name in enumerate(first)]
    cells = table.cells.slice(1).rename(dict(zip(table.names, names, strict=True)))
    if not cells.height:
        raise DatasetError(f"{table.source} has no ratings, only a header; {FIX}")
    return Table(table.source, cells, tuple(names))


def _are_names(first: Sequence[str], table: Table) -> bool:
    """Return whether the first line has words above numbers, and so is an unknown header."""
    if any(not cell or _is_number(cell) for cell in first) or table.cells.height < 2:
        return False
    below = table.cells.select(table.names).slice(1, _SAMPLE)
    return any(sum(map(_is_number, below[name])) > 0.9 * below.height for name in table.names)


def _is_number(cell: str | None) -> bool:
    try:
        return cell is not None and float(cell) is not None
    except ValueError:
        return False
