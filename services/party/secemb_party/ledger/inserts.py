"""Inserting what may be there already, and waiting for one's turn: where the two databases differ in words."""

from collections.abc import Mapping
from enum import IntEnum
from functools import cache
from typing import Any

from sqlalchemy import Connection, Table, bindparam, func, select
from sqlalchemy.dialects import postgresql, sqlite

from secemb_party.ledger.prepared import Prepared, writes_alone


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
