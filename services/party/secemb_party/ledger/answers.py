"""Answers to the peer that must be the same bytes for ever."""

from sqlalchemy import Connection, bindparam, select

from secemb_party.ledger.errors import LedgerUnavailableError
from secemb_party.ledger.inserts import insert_new
from secemb_party.ledger.prepared import Prepared
from secemb_party.ledger.tables import answers as table

_VALUE = Prepared(select(table.c.value).where(table.c.key == bindparam("key_")))


def remember(tx: Connection, key: str, value: bytes, now: float) -> bytes:
    """Store an answer if there is none yet, and return the one that is stored: the first writer wins."""
    insert_new(tx, table, {"key": key, "value": value, "stored_at": now})
    held = recall(tx, key)
    if held is None:
        raise LedgerUnavailableError("an answer vanished while it was stored: try again")
    return held


def recall(tx: Connection, key: str) -> bytes | None:
    """Return the answer that is stored, or None."""
    rows = _VALUE.rows(tx, {"key_": key})
    return rows[0][0] if rows else None
