"""A ledger as one file: a snapshot of every row of every table, as JSON lines, for another database or a backup.

The first line contains the schema, the tables and their columns; then there is one line per row; the last line contains
the SHA-256 of everything before it. Rows are sorted by their keys, so equal ledgers give equal files, whichever
database they are in. Tables and columns are taken from the schema, so a new table is included automatically.
"""

import hashlib
import json
from base64 import b64decode, b64encode
from collections.abc import Collection, Iterator, Sequence
from itertools import islice
from typing import Any, BinaryIO

from sqlalchemy import Column, Connection, String, Table, exists, func, insert, select
from sqlalchemy.types import LargeBinary, TypeDecorator

from secemb_party.errors import LedgerArchiveError, LedgerConflictError
from secemb_party.ledger.database import hold_snapshot, writes_alone
from secemb_party.ledger.events import append_event
from secemb_party.ledger.records import RoundState
from secemb_party.ledger.rounds import advance
from secemb_party.ledger.schema import METADATA, head, rounds

FORMAT = "secemb/1 ledger"
RESTORED = "a server was restored from a backup"
_AT_ONCE = 200  # rows: even with bodies of 250 kB, this many fit in memory
_LONGEST_LINE = 1 << 30
_FIX = "export it again with `secemb ledger export`"


def write_archive(tx: Connection, file: BinaryIO, *, leave_out: Collection[Table] = ()) -> dict[str, int]:
    """Write a snapshot of all rows, and return how many each table has; omitted tables count as empty."""
    hold_snapshot(tx)
    hashed = hashlib.sha256()

    def add(value: object) -> None:
        line = _line(value)
        hashed.update(line)
        file.write(line)

    tables = METADATA.sorted_tables
    names = {table.name: [column.name for column in table.columns] for table in tables}
    add({"format": FORMAT, "schema": head(), "tables": names})
    counts = dict.fromkeys(names, 0)
    for table in tables:
        for row in _rows(tx, table) if table not in leave_out else ():
            add([table.name, row])
            counts[table.name] += 1
    file.write(_line({"rows": counts, "sha256": hashed.hexdigest()}))
    return counts


def read_archive(tx: Connection, file: BinaryIO) -> dict[str, int]:
    """Fill an empty ledger with the rows of a file, all or nothing; return how many each table has."""
    counts = check_archive(file)
    for table in METADATA.sorted_tables:
        if tx.execute(select(exists().select_from(table))).scalar_one():
            raise LedgerConflictError("the database already has data in it; import into an empty database")
    file.seek(0)
    tables = {table.name: table for table in METADATA.sorted_tables}
    next(file)
    while lines := list(islice(file, _AT_ONCE)):
        _insert(tx, tables, [json.loads(line) for line in lines])
    _count_on(tx)
    return counts


def restore_archive(tx: Connection, file: BinaryIO, now: float) -> dict[str, int]:
    """Fill an empty ledger from a backup: like `read_archive`, but rounds that accepted sessions are aborted.

    Bodies are not in a backup, and the sums of these rounds may have been opened since.
    """
    counts = read_archive(tx, file)
    for row in tx.execute(select(rounds.c.round_id, rounds.c.state).where(rounds.c.ended_at.is_(None))).all():
        if row.state == RoundState.SEALED:
            raise LedgerArchiveError("the backup was made while a round was being summed; use an earlier backup")
        if row.state in (RoundState.OPEN, RoundState.SEALING):
            advance(tx, row.round_id, RoundState(row.state), RoundState.ABORTED, now, reason=RESTORED)
    append_event(tx, "restored", {"rows": sum(counts.values())}, now)
    return counts


def check_archive(file: BinaryIO) -> dict[str, int]:
    """Refuse a file that is truncated, altered, or of another schema; return how many rows each table has."""
    hashed, last = hashlib.sha256(), b""
    for line in iter(lambda: file.readline(_LONGEST_LINE), b""):
        if not last:
            _check_head(line)
        else:
            hashed.update(last)
        last = line
    found = _parse(last)
    if not isinstance(found, dict) or found.get("sha256") != hashed.hexdigest():
        raise LedgerArchiveError(f"the file is truncated or corrupted; {_FIX}")
    return dict(found["rows"])


def _check_head(line: bytes) -> None:
    found = _parse(line)
    if not isinstance(found, dict) or found.get("format") != FORMAT:
        raise LedgerArchiveError(f"this is not an exported ledger; {_FIX}")
    if found["schema"] != head():
        raise LedgerArchiveError(
            f"the file has schema {found['schema']}, but this version needs {head()}; import it with the version"
            " that wrote it, then run `secemb ledger upgrade`"
        )


def _parse(line: bytes) -> Any:
    try:
        return json.loads(line)
    except ValueError:
        return None


def _line(value: object) -> bytes:
    return json.dumps(value, allow_nan=False, separators=(",", ":")).encode() + b"\n"


def _rows(tx: Connection, table: Table) -> Iterator[list[Any]]:
    binary = [_is_binary(column) for column in table.columns]
    statement = select(table).order_by(*(_sortable(tx, column) for column in table.primary_key.columns))
    for row in tx.execute(statement, execution_options={"yield_per": _AT_ONCE}):
        yield [
            b64encode(value).decode() if is_binary and value is not None else value
            for value, is_binary in zip(row, binary, strict=True)
        ]


def _sortable(tx: Connection, column: Column[Any]) -> Any:
    """Return a column to sort by: texts by their bytes, whatever the locale of the database."""
    is_text = isinstance(_plain_type(column), String)
    return column.collate("C") if is_text and not writes_alone(tx) else column


def _insert(tx: Connection, tables: dict[str, Table], lines: Sequence[Any]) -> None:
    rows: dict[str, list[dict[str, Any]]] = {}
    for line in lines:
        if isinstance(line, list):  # the last line is not a row
            name, values = line
            rows.setdefault(name, []).append(_row(tables[name], values))
    for name, some in rows.items():
        tx.execute(insert(tables[name]), some)


def _row(table: Table, values: Sequence[Any]) -> dict[str, Any]:
    return {
        column.name: b64decode(value) if value is not None and _is_binary(column) else value
        for column, value in zip(table.columns, values, strict=True)
    }


def _is_binary(column: Column[Any]) -> bool:
    return isinstance(_plain_type(column), LargeBinary)


def _plain_type(column: Column[Any]) -> Any:
    kind = column.type
    return kind.impl_instance if isinstance(kind, TypeDecorator) else kind


def _count_on(tx: Connection) -> None:
    """Let PostgreSQL continue after the inserted numbers; SQLite does this automatically."""
    if writes_alone(tx):
        return
    for table in METADATA.sorted_tables:
        if (counter := table.autoincrement_column) is not None:
            sequence = func.pg_get_serial_sequence(table.name, counter.name)
            tx.execute(select(func.setval(sequence, func.max(counter))))
