"""The bodies of sessions: read back in batches, forgotten when their round is over."""

import math
from collections.abc import Sequence

from sqlalchemy import Connection, bindparam, delete, func, select

from secemb_party.ledger.errors import LedgerFormatError, NotRecordedError
from secemb_party.ledger.prepared import Prepared
from secemb_party.ledger.records import SessionBodies
from secemb_party.ledger.sessions import KEYS, UPDATE
from secemb_party.ledger.tables import bodies as table
from secemb_party.ledger.tables import rounds, sessions

FORGET_AT_ONCE = 64  # sessions a transaction: whoever wants to write meanwhile waits for one batch, not for all

_IN_ROUND = table.join(sessions, sessions.c.session_id == table.c.session_id)
_PARTS = (
    select(table.c.session_id, table.c.part, table.c.body)
    .select_from(_IN_ROUND)
    .where(sessions.c.round_id == bindparam("round"), table.c.session_id.in_(bindparam("session_ids", expanding=True)))
)
_KEYS_BODY = (
    select(table.c.body)
    .select_from(_IN_ROUND)
    .where(
        sessions.c.round_id == bindparam("round"),
        table.c.session_id == bindparam("session"),
        table.c.part == KEYS,
    )
)
_ENDED = select(
    rounds.c.round_id,
    rounds.c.ended_at,
    func.row_number().over(partition_by=rounds.c.task_id, order_by=rounds.c.number.desc()).label("place"),
)
_RANKED = _ENDED.where(rounds.c.ended_at.is_not(None)).subquery()
_FORGETTABLE = (
    select(table.c.session_id)
    .distinct()
    .select_from(_IN_ROUND.join(_RANKED, _RANKED.c.round_id == sessions.c.round_id))
    .where(_RANKED.c.place > bindparam("kept"), _RANKED.c.ended_at < bindparam("before"))
    .limit(FORGET_AT_ONCE)
)
_FORGET = Prepared(delete(table).where(table.c.session_id.in_(_FORGETTABLE)))


def read_bodies(tx: Connection, round_id: bytes, session_ids: Sequence[bytes]) -> list[SessionBodies]:
    """Return keys and update of each of these sessions, in their order."""
    rows = tx.execute(_PARTS, {"round": round_id, "session_ids": list(session_ids)})
    found = {(row.session_id, row.part): row.body for row in rows}
    try:
        return [SessionBodies(name, found[name, KEYS], found[name, UPDATE]) for name in session_ids]
    except KeyError:
        raise NotRecordedError("a session on the list is not complete here, or its bodies are forgotten") from None


def keys_body(tx: Connection, round_id: bytes, session_id: bytes) -> bytes | None:
    """Return the keys of a session, or None where there are none, not yet or no longer."""
    body: bytes | None = tx.execute(_KEYS_BODY, {"round": round_id, "session": session_id}).scalar_one_or_none()
    return body


def forget_some(tx: Connection, *, ended_before: float | None, keep_last_rounds: int) -> int:
    """Remove a batch of bodies whose rounds are over; return how many, fewer than a batch's when there are no more."""
    if keep_last_rounds < 0:
        raise LedgerFormatError("the number of rounds to keep cannot be negative")
    before = math.inf if ended_before is None else ended_before
    return _FORGET.change(tx, {"kept": keep_last_rounds, "before": before})
