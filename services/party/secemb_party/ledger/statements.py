"""Where the two databases differ: who writes at the same time, insertions that may find a row, turns and snapshots."""

from collections.abc import Mapping
from enum import IntEnum
from functools import cache
from typing import Any

from sqlalchemy import Connection, Insert, Table, bindparam, func, select
from sqlalchemy.dialects import postgresql, sqlite


class Turn(IntEnum):
    """What only one transaction or process does at a time; the numbers name advisory locks and mean nothing else."""

    MIGRATION = 0x5EC_E3B_01
    EVENTS = 0x5EC_E3B_02
    TOKENS = 0x5EC_E3B_04
    SERVING = 0x5EC_E3B_03  # for as long as a server runs


_TAKE_TURN = select(func.pg_advisory_xact_lock(bindparam("turn")))


def writes_alone(tx: Connection) -> bool:
    """Return whether a writing transaction is the only one there is: in SQLite it is."""
    return tx.dialect.name == "sqlite"


def insert_new(tx: Connection, table: Table, row: Mapping[str, Any]) -> bool:
    """Insert a row unless one with its key is there; return whether it was inserted."""
    return tx.execute(_insertion(table, tx.dialect.name), dict(row)).rowcount == 1


@cache  # a statement that is kept is compiled once
def _insertion(table: Table, dialect: str) -> Insert:
    insert = sqlite.insert if dialect == "sqlite" else postgresql.insert
    return insert(table).on_conflict_do_nothing()


def take_turn(tx: Connection, turn: Turn) -> None:
    """Wait until no other transaction has this turn; it ends with the transaction."""
    if not writes_alone(tx):
        tx.execute(_TAKE_TURN, {"turn": int(turn)})


def hold_snapshot(tx: Connection) -> None:
    """Let every statement from here on see one moment, while others write; call it before the first statement."""
    tx.exec_driver_sql("BEGIN" if writes_alone(tx) else "SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY")
