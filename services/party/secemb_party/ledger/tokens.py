"""Enrolment tokens of devices, by their SHA-256.

A device has a name and a sequence of tokens: generation 0, 1, …. All of them identify the same device, which rounds
know by the hash of its first token, so a device with two valid tokens still has one session per round.
"""

import re
from collections.abc import Iterable, Sequence

from sqlalchemy import Connection, RowMapping, bindparam, insert, select, tuple_, update

from secemb_party.errors import LedgerFormatError, TokenConflictError, UnknownTokenError
from secemb_party.ledger.database import Turn, insert_new, take_turn
from secemb_party.ledger.devices import COUNTS, NO_CONDUCT
from secemb_party.ledger.events import record_action
from secemb_party.ledger.records import Added, Conduct, NewToken, Token
from secemb_party.ledger.schema import devices
from secemb_party.ledger.schema import tokens as tokens_table
from secemb_party.operators import Order

_PLACE = tuple_(tokens_table.c.name, tokens_table.c.generation)
_TOKENS = select(tokens_table, *COUNTS).join(devices, devices.c.device == tokens_table.c.device)
_BY_HASH = _TOKENS.where(tokens_table.c.token_hash == bindparam("hash"))
_HASHES = select(tokens_table.c.token_hash).where(tokens_table.c.token_hash.in_(bindparam("hashes", expanding=True)))
_BY_NAMES = _TOKENS.where(tokens_table.c.name.in_(bindparam("names", expanding=True))).order_by(
    tokens_table.c.name, tokens_table.c.generation
)
_BY_PREFIX = _TOKENS.where(tokens_table.c.token_hash.between(bindparam("first"), bindparam("last"))).limit(2)
_AFTER = _TOKENS.where(tuple_(bindparam("after_name"), bindparam("after_generation")) < _PLACE).order_by(
    tokens_table.c.name, tokens_table.c.generation
)
_REVOKE = (
    update(tokens_table)
    .where(tokens_table.c.name.in_(bindparam("names", expanding=True)), tokens_table.c.revoked_at.is_(None))
    .values(revoked_at=bindparam("now"))
)
_SHORTEN = (
    update(tokens_table)
    .where(
        tokens_table.c.name == bindparam("name_"),
        tokens_table.c.generation < bindparam("before"),
        tokens_table.c.expires_at.is_(None) | (tokens_table.c.expires_at > bindparam("end")),
    )
    .values(expires_at=bindparam("end"))
)
_ADD, _ADD_DEVICES = insert(tokens_table), insert(devices)
_PREFIX = re.compile(r"[0-9a-f]{8,64}")


def add_tokens(tx: Connection, new: Sequence[NewToken], order: Order, now: float) -> list[Added]:
    """Add the first tokens of unknown devices, and return the outcome for each; other devices are unchanged."""
    take_turn(tx, Turn.TOKENS)
    held = {(one.name, one.token_hash) for one in tokens_of(tx, [one.name for one in new])}
    names, hashes = {name for name, _ in held}, _known(tx, new)
    outcomes, rows = [], []
    for one in new:
        _check_name(one.name)
        if one.name in names:
            outcomes.append(Added.SAME if (one.name, one.token_hash) in held else Added.NAME_TAKEN)
        elif one.token_hash in hashes:
            outcomes.append(Added.TOKEN_TAKEN)
        else:
            outcomes.append(Added.ADDED)
            rows.append(_first_row(one, now))
            held.add((one.name, one.token_hash))
            names.add(one.name)
            hashes.add(one.token_hash)
    if rows:
        tx.execute(_ADD, rows)
        tx.execute(_ADD_DEVICES, [{"device": row["device"], **NO_CONDUCT} for row in rows])
        record_action(tx, order, "token create", {"tokens": outcomes.count(Added.ADDED)}, now)
    return outcomes


def replace_token(tx: Connection, new: NewToken, order: Order, now: float, *, overlap: float) -> Added:
    """Give a device its next token; earlier ones expire after `overlap` seconds, or sooner if they were due to."""
    take_turn(tx, Turn.TOKENS)
    held = tokens_of(tx, [new.name])
    if not held:
        raise UnknownTokenError("no device has this name; create its first token instead")
    last = held[-1]
    if last.token_hash == new.token_hash:
        return Added.SAME
    if last.revoked_at is not None:
        raise TokenConflictError("this device has been revoked; enrol it under another name")
    row = _first_row(new, now) | {"device": last.device, "generation": last.generation + 1}
    if not insert_new(tx, tokens_table, row):
        raise TokenConflictError("this token has been used before; generate a new one")
    tx.execute(_SHORTEN, {"name_": new.name, "before": last.generation + 1, "end": now + overlap})
    record_action(tx, order, "token replace", {"tokens": 1}, now)
    return Added.ADDED


def revoke_tokens(tx: Connection, names: Sequence[str], order: Order, now: float) -> int:
    """Revoke all tokens of these devices, and return the number of devices; unknown names are not counted."""
    take_turn(tx, Turn.TOKENS)
    open_ = {one.name for one in tokens_of(tx, names) if one.revoked_at is None}
    if open_:
        tx.execute(_REVOKE, {"names": sorted(open_), "now": now})
        record_action(tx, order, "token revoke", {"tokens": len(open_)}, now)
    return len(open_)


def find_device(tx: Connection, name_or_prefix: str) -> str:
    """Return the name of a device, given its name or a unique prefix of a token hash (at least 8 digits)."""
    if tokens_of(tx, [name_or_prefix]):
        return name_or_prefix
    rows: Sequence[Token] = []
    if _PREFIX.fullmatch(name_or_prefix):
        first, last = (bytes.fromhex(name_or_prefix.ljust(64, digit)) for digit in "0f")
        rows = _tokens(tx.execute(_BY_PREFIX, {"first": first, "last": last}).mappings())
    if not rows:
        raise UnknownTokenError("no token matches this name or hash prefix")
    if len(rows) > 1:
        raise TokenConflictError("more than one token matches this hash prefix; give more digits")
    return rows[0].name


def token(tx: Connection, token_hash: bytes) -> Token | None:
    """Return a token, revoked or not, or None: a single index lookup, however many tokens there are."""
    row = tx.execute(_BY_HASH, {"hash": token_hash}).mappings().one_or_none()
    return None if row is None else _token(row)


def tokens_of(tx: Connection, names: Sequence[str]) -> list[Token]:
    """Return the tokens of some devices by name, oldest first."""
    return _tokens(tx.execute(_BY_NAMES, {"names": list(names)}).mappings())


def tokens(tx: Connection, *, after: tuple[str, int] = ("", 0), limit: int) -> list[Token]:
    """Return the tokens after a name and generation, in the order of names."""
    found = tx.execute(_AFTER.limit(limit), {"after_name": after[0], "after_generation": after[1]})
    return _tokens(found.mappings())


def _tokens(rows: Iterable[RowMapping]) -> list[Token]:
    return [_token(row) for row in rows]


def _token(row: RowMapping) -> Token:
    facts = dict(row)
    return Token(conduct=Conduct(*(facts.pop(column.name) for column in COUNTS)), **facts)


def _known(tx: Connection, new: Sequence[NewToken]) -> set[bytes]:
    return set(tx.execute(_HASHES, {"hashes": [one.token_hash for one in new]}).scalars())


def _first_row(new: NewToken, now: float) -> dict[str, object]:
    return {
        "token_hash": new.token_hash,
        "device": new.token_hash,
        "name": new.name,
        "generation": 0,
        "created_at": now,
        "expires_at": new.expires_at,
    }


def _check_name(name: str) -> None:
    if not name.isprintable() or name != name.strip():
        raise LedgerFormatError("a device name must be printable, without leading or trailing spaces")
