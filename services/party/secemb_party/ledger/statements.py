"""Statements that are needed again and again: compiled once, and where the two databases differ in words."""

import sqlite3
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from enum import IntEnum
from functools import cache, partial
from typing import Any, cast

from sqlalchemy import (
    Connection,
    Delete,
    Dialect,
    Engine,
    Insert,
    Select,
    Table,
    TypeDecorator,
    Update,
    bindparam,
    func,
    select,
)
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.types import TypeEngine


class HeldConnection:
    """A thread's own connection, kept from one transaction to the next; one that failed goes back to the pool."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._connection: Connection | None = None

    @contextmanager
    def begin(self) -> Iterator[Connection]:
        """Run one transaction."""
        if self._connection is None:
            self._connection = self._engine.connect()
        try:
            with self._connection.begin():
                yield self._connection
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Give the connection back."""
        held, self._connection = self._connection, None
        if held is not None:
            held.close()


Row = tuple[Any, ...]
Check = Callable[[Any], Any] | None


def writes_alone(tx: Connection) -> bool:
    """Return whether a writing transaction is the only one there is: in SQLite it is."""
    return tx.dialect.name == "sqlite"


class Prepared:
    """One statement with named parameters; `names` are those of an insertion, which does not name them itself."""

    def __init__(self, statement: Select[*tuple[Any, ...]] | Insert | Update | Delete, *names: str) -> None:
        self._statement, self._names = statement, names
        self._sqlite: tuple[str, list[tuple[str, Check]]] | None = None
        self._fixed: dict[str, Any] = {}  # such as a limit, which SQLAlchemy makes a parameter of
        self._columns = statement.selected_columns.keys() if isinstance(statement, Select) else []

    def rows(self, tx: Connection, values: Mapping[str, Any]) -> list[Row]:
        """Run a query."""
        if writes_alone(tx):
            return self._run(tx, values).fetchall()
        return [tuple(row) for row in tx.execute(self._statement, dict(values))]

    def records(self, tx: Connection, values: Mapping[str, Any]) -> list[dict[str, Any]]:
        """Run a query; its rows by the names of their columns."""
        return [dict(zip(self._columns, row, strict=True)) for row in self.rows(tx, values)]

    def change(self, tx: Connection, values: Mapping[str, Any]) -> int:
        """Run any other statement and return how many rows it has changed."""
        if writes_alone(tx):
            return self._run(tx, values).rowcount
        return tx.execute(self._statement, dict(values)).rowcount

    def _run(self, tx: Connection, values: Mapping[str, Any]) -> sqlite3.Cursor:
        if self._sqlite is None:
            self._sqlite = self._compile(tx.dialect)
        text, parameters = self._sqlite
        if self._fixed:
            values = {**self._fixed, **values}
        given = [values[name] if check is None else check(values[name]) for name, check in parameters]
        return cast(sqlite3.Connection, tx.connection.dbapi_connection).execute(text, given)

    def _compile(self, dialect: Dialect) -> tuple[str, list[tuple[str, Check]]]:
        """Return the text and, for each of its parameters, the name and what its column asks of a value."""
        compiled = self._statement.compile(dialect=dialect, column_keys=list(self._names) or None)
        names = compiled.positiontup or ()
        self._fixed = {name: compiled.binds[name].value for name in names if not compiled.binds[name].required}
        return str(compiled), [(name, _check(compiled.binds[name].type, dialect)) for name in names]


def _check(kind: TypeEngine[Any], dialect: Dialect) -> Check:
    """Return what a column of ours asks of a value; all others take bytes, numbers and texts as the driver does."""
    return partial(kind.process_bind_param, dialect=dialect) if isinstance(kind, TypeDecorator) else None


class Turn(IntEnum):
    """What only one transaction does at a time; the numbers name advisory locks and mean nothing else."""

    MIGRATION = 0x5EC_E3B_01
    EVENTS = 0x5EC_E3B_02


_TAKE_TURN = select(func.pg_advisory_xact_lock(bindparam("turn")))


def insert_new(tx: Connection, table: Table, row: Mapping[str, Any]) -> bool:
    """Insert a row unless one with its key is there; return whether it was inserted."""
    return _insert_new(table, tx.dialect.name, tuple(row)).change(tx, row) == 1


def take_turn(tx: Connection, turn: Turn) -> None:
    """Wait until no other transaction has this turn; it ends with the transaction."""
    if not writes_alone(tx):
        tx.execute(_TAKE_TURN, {"turn": int(turn)})


@cache
def _insert_new(table: Table, dialect: str, names: tuple[str, ...]) -> Prepared:
    if dialect == "sqlite":
        return Prepared(sqlite.insert(table).on_conflict_do_nothing(), *names)
    return Prepared(postgresql.insert(table).on_conflict_do_nothing(), *names)
