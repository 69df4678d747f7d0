"""Rounds, their states, and the function that moves them from state to state."""

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import fields
from typing import Any

from sqlalchemy import Connection, RowMapping, Select, bindparam, func, select, update

from secemb_party.errors import LedgerConflictError, LedgerFormatError, NotRecordedError, StateConflictError
from secemb_party.ledger.database import insert_new, writes_alone
from secemb_party.ledger.devices import note_aborted, note_counted, note_rejections
from secemb_party.ledger.events import append_event, record_action
from secemb_party.ledger.records import ENDED, REQUIRED_FACTS, NewRound, RoundRecord, RoundState, What, Window, allowed
from secemb_party.ledger.schema import instructions, sessions
from secemb_party.ledger.schema import rounds as rounds_table
from secemb_party.ledger.tasks import find_task
from secemb_party.operators import Order

_ID_SIZE = 16
REJECTED = "session-rejected"  # recorded for a device whose session failed a check between the servers
_ROUND = select(rounds_table).where(rounds_table.c.round_id == bindparam("round"))
# A round's row is its lock: everything that changes in the round, including sessions, changes under this lock.
_LOCK = (
    select(rounds_table.c.round_id).where(rounds_table.c.round_id == bindparam("round")).with_for_update(key_share=True)
)
_OF_TASK = (
    select(rounds_table).where(rounds_table.c.task_id == bindparam("task")).order_by(rounds_table.c.number.desc())
)
_LAST = _OF_TASK.limit(1)
_CURRENT = _OF_TASK.where(rounds_table.c.ended_at.is_(None)).limit(1)
_SHARES = (
    select(rounds_table.c.kind, func.count())
    .where(rounds_table.c.task_id == bindparam("task"), rounds_table.c.share_digest.is_not(None))
    .group_by(rounds_table.c.kind)
)
_DISCARDED = (
    select(rounds_table.c.kind, func.count())
    .where(rounds_table.c.task_id == bindparam("task"), rounds_table.c.state == RoundState.DISCARDED)
    .group_by(rounds_table.c.kind)
)
_RANKED = (
    select(
        rounds_table.c.round_id,
        rounds_table.c.ended_at,
        func.row_number()
        .over(partition_by=rounds_table.c.task_id, order_by=rounds_table.c.number.desc())
        .label("place"),
    )
    .where(rounds_table.c.ended_at.is_not(None))
    .subquery()
)
_LONG_ENDED = select(_RANKED.c.round_id).where(
    _RANKED.c.round_id.in_(bindparam("rounds", expanding=True)),
    _RANKED.c.place > bindparam("kept"),
    _RANKED.c.ended_at < bindparam("before"),
)
_COMPLETE = select(sessions.c.session_id).where(
    sessions.c.round_id == bindparam("round"), sessions.c.update_digest.is_not(None)
)
_TO_ABORT = select(instructions.c.round_id).where(
    instructions.c.what == What.ABORT.value, instructions.c.round_id == bindparam("round")
)


def create_round(tx: Connection, new: NewRound) -> RoundRecord:
    """Open a round; repeating the call returns the stored round, and a different round with this number is refused."""
    find_task(tx, new.task_id)
    row = {field.name: getattr(new, field.name) for field in fields(NewRound)}
    if not insert_new(tx, rounds_table, {**row, "state": RoundState.OPEN}):
        _check_same(tx, new)
    return _find(tx, new.round_id)


def find_round(tx: Connection, round_id: bytes) -> RoundRecord | None:
    """Return a round, or None."""
    return _first(tx, _ROUND, {"round": round_id})


def current_round(tx: Connection, task_id: bytes) -> RoundRecord | None:
    """Return the latest round of a task that has not ended, or None."""
    return _first(tx, _CURRENT, {"task": task_id})


def last_round(tx: Connection, task_id: bytes) -> RoundRecord | None:
    """Return the latest round of a task, ended or not, or None."""
    return _first(tx, _LAST, {"task": task_id})


def long_ended(
    tx: Connection, round_ids: Sequence[bytes], *, ended_before: float | None, keep_last_rounds: int
) -> list[bytes]:
    """Return the given rounds that have ended and are not among the most recently ended ones of their task."""
    if keep_last_rounds < 0:
        raise LedgerFormatError("the number of rounds to keep cannot be negative")
    before = math.inf if ended_before is None else ended_before
    wanted = {"rounds": list(round_ids), "kept": keep_last_rounds, "before": before}
    return list(tx.execute(_LONG_ENDED, wanted).scalars())


def rounds(
    tx: Connection,
    task_id: bytes,
    *,
    limit: int = 50,
    before_number: int | None = None,
    kind: str | None = None,
    state: RoundState | None = None,
) -> list[RoundRecord]:
    """Return rounds of a task, newest first, below a number and of one kind or state if given."""
    page = _OF_TASK if before_number is None else _OF_TASK.where(rounds_table.c.number < before_number)
    wanted = {"kind": kind, "state": state}
    page = page.where(*(rounds_table.c[name] == value for name, value in wanted.items() if value is not None))
    rows = tx.execute(page.limit(limit), {"task": task_id})
    return [_known(row) for row in rows.mappings()]


def shares_by_kind(tx: Connection, task_id: bytes) -> dict[str, int]:
    """Return how many shares of each kind of round this server has ever recorded; a round counts once."""
    return {str(kind): int(count) for kind, count in tx.execute(_SHARES, {"task": task_id})}


def discarded_by_kind(tx: Connection, task_id: bytes) -> dict[str, int]:
    """Return how many rounds of each kind were discarded; `shares_by_kind` includes their shares."""
    return {str(kind): int(count) for kind, count in tx.execute(_DISCARDED, {"task": task_id})}


def postpone(tx: Connection, round_id: bytes, window: Window) -> None:
    """Set the deadlines of an open round to later ones; earlier ones change nothing."""
    later = rounds_table.c.upload_until < window.upload_until
    tx.execute(
        update(rounds_table)
        .where(rounds_table.c.round_id == round_id, rounds_table.c.state == RoundState.OPEN, later)
        .values(join_until=window.join_until, upload_until=window.upload_until)
    )


def advance(
    tx: Connection,
    round_id: bytes,
    expect: RoundState,
    to: RoundState,
    now: float,
    *,
    sealed_sessions: Collection[bytes] | None = None,
    list_digest: bytes | None = None,
    share_digest: bytes | None = None,
    next_version: int | None = None,
    reason: str | None = None,
    remarks: Mapping[str, Any] | None = None,
    order: Order | None = None,
    rejected_sessions: Sequence[bytes] = (),
) -> RoundRecord:
    """Advance a round by one state, if it is in the expected state, and record an event with remarks.

    The order of an operator who aborts the round is also recorded. In the step that ends the comparison, sessions that
    a check between the servers rejected are recorded for their devices. A repeated call returns the round as it is. A
    stored fact never changes: a call with a different one is refused, and so is a call for a round in another state.
    """
    facts = {
        "sealed_sessions": None if sealed_sessions is None else _joined(sealed_sessions),
        "list_digest": list_digest,
        "share_digest": share_digest,
        "next_version": next_version,
        "reason": reason,
    }
    given = {name: value for name, value in facts.items() if value is not None}
    lock_round(tx, round_id)
    row = _row(tx, round_id)
    if _is_done(row, expect, to, given):
        return _known(row)
    _check_complete(tx, row, to, given)
    moved = {"state": to, f"{'ended' if to in ENDED else to.value}_at": now, **given}
    tx.execute(update(rounds_table).where(rounds_table.c.round_id == round_id).values(moved))
    why = {"reason": reason} if reason is not None else {}
    told = {"round": row["number"], "kind": row["kind"], "state": to.value, **why, **(remarks or {})}
    append_event(tx, "round", told, now, task=row["task_id"])
    note_rejections(tx, rejected_sessions, REJECTED, now)
    if to is RoundState.SEALED:
        note_counted(tx, sorted(sealed_sessions or ()))
    elif to is RoundState.ABORTED:
        note_aborted(tx, round_id)
    if order is not None:
        record_action(tx, order, "abort", {"round": row["number"]}, now, task=row["task_id"])
    return _find(tx, round_id)


def lock_round(tx: Connection, round_id: bytes) -> None:
    """Wait until no other transaction is changing a round; what is read afterwards remains true."""
    if not writes_alone(tx):
        tx.execute(_LOCK, {"round": round_id})


def _check_same(tx: Connection, new: NewRound) -> None:
    """Refuse a round that differs from the stored one; the deadlines of the first call apply."""
    held = find_round(tx, new.round_id)
    if held is None:
        raise LedgerConflictError(
            f"round {new.number} of this task is already in the ledger with a different specification"
        )
    if any(
        getattr(held, name) != getattr(new, name) for name in ("task_id", "number", "kind", "model_version", "spec")
    ):
        raise LedgerConflictError("this round id is already in the ledger with different contents")


def _is_done(row: RowMapping, expect: RoundState, to: RoundState, given: dict[str, Any]) -> bool:
    """Return whether a round is already in the target state, and refuse any step that is not allowed."""
    state = RoundState(row["state"])
    for name, value in given.items():
        if (held := row[name]) is not None and held != value:
            raise StateConflictError(f"the round is already {state} with a different {name}", state)
    if state == to and all(row[name] is not None for name in given):
        return True
    if state != expect or not allowed(expect, to):
        raise StateConflictError(f"the round is {state}, so it cannot go from {expect} to {to}", state)
    return False


def _check_complete(tx: Connection, row: RowMapping, to: RoundState, given: dict[str, Any]) -> None:
    """Refuse a step without its facts, a list with an incomplete session, or a seal despite an abort."""
    if to is RoundState.SEALING and tx.execute(_TO_ABORT, {"round": row["round_id"]}).first() is not None:
        raise StateConflictError("an operator is aborting this round", RoundState(row["state"]))
    missing = [n for n in REQUIRED_FACTS.get(to, ()) if n not in given and row[n] is None]
    if missing:
        raise LedgerFormatError(f"a round cannot become {to} without {' and '.join(missing)}")
    if "sealed_sessions" in given:
        complete = set(tx.execute(_COMPLETE, {"round": row["round_id"]}).scalars())
        if not complete.issuperset(_split(given["sealed_sessions"])):
            raise StateConflictError("a session on the list is not complete here", RoundState(row["state"]))


def _joined(session_ids: Collection[bytes]) -> bytes:
    ids = sorted(session_ids)
    if any(len(name) != _ID_SIZE for name in ids) or len(set(ids)) != len(ids):
        raise LedgerFormatError("a session list must consist of distinct 16-byte session ids")
    return b"".join(ids)


def _split(joined: bytes) -> tuple[bytes, ...]:
    return tuple(joined[at : at + _ID_SIZE] for at in range(0, len(joined), _ID_SIZE))


def _row(tx: Connection, round_id: bytes) -> RowMapping:
    row = tx.execute(_ROUND, {"round": round_id}).mappings().one_or_none()
    if row is None:
        raise NotRecordedError("this round is not in the ledger")
    return row


def _find(tx: Connection, round_id: bytes) -> RoundRecord:
    return _known(_row(tx, round_id))


def _first(tx: Connection, statement: Select[*tuple[Any, ...]], values: Mapping[str, Any]) -> RoundRecord | None:
    row = tx.execute(statement, dict(values)).mappings().one_or_none()
    return _known(row) if row is not None else None


def _known(row: RowMapping) -> RoundRecord:
    joined = row["sealed_sessions"]
    facts = {"state": RoundState(row["state"]), "sealed_sessions": None if joined is None else _split(joined)}
    return RoundRecord(**{**row, **facts})
