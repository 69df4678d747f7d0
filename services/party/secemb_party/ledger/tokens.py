"""Enrolment tokens of devices, by their SHA-256."""

import re
from collections.abc import Mapping

from sqlalchemy import Connection, bindparam, select, update

from secemb_party.errors import LedgerConflictError, NotRecordedError
from secemb_party.ledger.records import Token
from secemb_party.ledger.schema import tokens as tokens_table
from secemb_party.ledger.statements import insert_new

_BY_HASH = select(tokens_table).where(tokens_table.c.token_hash == bindparam("hash"))
_BY_NAME = select(tokens_table).where(tokens_table.c.name == bindparam("name_"))
_BY_PREFIX = (
    select(tokens_table).where(tokens_table.c.token_hash.between(bindparam("first"), bindparam("last"))).limit(2)
)
_REVOKE = (
    update(tokens_table)
    .where(tokens_table.c.token_hash == bindparam("hash"), tokens_table.c.revoked_at.is_(None))
    .values(revoked_at=bindparam("now"))
)
_PREFIX = re.compile(r"[0-9a-f]{8,64}")


def add_token(tx: Connection, token_hash: bytes, name: str, now: float) -> Token:
    """Remember a token; the same again changes nothing, a second one of the same name is refused."""
    insert_new(tx, tokens_table, {"token_hash": token_hash, "name": name, "created_at": now})
    held = token(tx, token_hash)
    if held is None:
        raise LedgerConflictError("another token has this name; a name is not used twice, even after it is revoked")
    if held.name != name:
        raise LedgerConflictError("this token is held under another name")
    return held


def add_tokens(tx: Connection, names: Mapping[bytes, str], now: float) -> None:
    """Remember tokens, by their hashes, all or none."""
    for token_hash, name in names.items():
        add_token(tx, token_hash, name, now)


def revoke_token(tx: Connection, name_or_prefix: str, now: float) -> Token:
    """Revoke the token of a name, or else the only one whose hash begins so (8 hexadecimal digits or more)."""
    found = _find(tx, name_or_prefix)
    tx.execute(_REVOKE, {"hash": found.token_hash, "now": now})
    return _find(tx, name_or_prefix)


def token(tx: Connection, token_hash: bytes) -> Token | None:
    """Return a token, revoked or not, or None."""
    row = tx.execute(_BY_HASH, {"hash": token_hash}).mappings().one_or_none()
    return None if row is None else Token(**row)


def tokens(tx: Connection) -> list[Token]:
    """Return every token, the oldest first."""
    rows = tx.execute(select(tokens_table).order_by(tokens_table.c.created_at, tokens_table.c.name))
    return [Token(**row) for row in rows.mappings()]


def _find(tx: Connection, name_or_prefix: str) -> Token:
    rows = tx.execute(_BY_NAME, {"name_": name_or_prefix}).mappings().all()
    if not rows and _PREFIX.fullmatch(name_or_prefix):
        first, last = (bytes.fromhex(name_or_prefix.ljust(64, digit)) for digit in "0f")
        rows = tx.execute(_BY_PREFIX, {"first": first, "last": last}).mappings().all()
    if not rows:
        raise NotRecordedError("no token has this name, nor a hash that begins so")
    if len(rows) > 1:
        raise LedgerConflictError("more than one token has a hash that begins so: give more digits")
    return Token(**rows[0])
