"""Events and operators' actions, in order, and answers to the peer, whose bytes must stay the same."""

import json
import secrets
from collections.abc import Mapping
from typing import Any

from sqlalchemy import ColumnElement, Connection, bindparam, delete, insert, or_, select

from secemb_party.errors import LedgerFormatError, LedgerUnavailableError
from secemb_party.ledger.database import Turn, insert_new, take_turn
from secemb_party.ledger.records import Action, Event
from secemb_party.ledger.schema import actions as actions_table
from secemb_party.ledger.schema import answers as answers_table
from secemb_party.ledger.schema import events as events_table
from secemb_party.operators import Order

KEPT = 10_000
_PROBE_BYTES = 1 << 20
_LONGEST = 8192  # characters: an event is a short note, not a document

_VALUE = select(answers_table.c.value).where(answers_table.c.key == bindparam("key_"))
_ADD = insert(events_table).returning(events_table.c.event_id)
_NEWEST = select(events_table).order_by(events_table.c.event_id.desc())
_AFTER = select(events_table).where(events_table.c.event_id > bindparam("after")).order_by(events_table.c.event_id)
_ADD_ACTION = insert(actions_table)
_NEWEST_ACTIONS = select(actions_table).order_by(actions_table.c.action_id.desc())


def remember(tx: Connection, key: str, value: bytes, now: float) -> bytes:
    """Store an answer if there is none yet, and return the one that is stored: the first writer wins."""
    insert_new(tx, answers_table, {"key": key, "value": value, "stored_at": now})
    held = recall(tx, key)
    if held is None:
        raise LedgerUnavailableError("an answer disappeared while it was being stored; try again")
    return held


def recall(tx: Connection, key: str) -> bytes | None:
    """Return the answer that is stored, or None."""
    value: bytes | None = tx.execute(_VALUE, {"key_": key}).scalar_one_or_none()
    return value


def append_event(
    tx: Connection, kind: str, data: Mapping[str, Any], now: float, *, task: bytes | None = None, keep: int = KEPT
) -> int:
    """Add an event about a task or the server, and return its number; only the newest `keep` of each are kept."""
    text = _text(data)
    # One at a time: if a number became visible after a higher one, a reader would miss it.
    take_turn(tx, Turn.EVENTS)
    event_id: int = tx.execute(_ADD, {"at": now, "kind": kind, "data": text, "task_id": task}).scalar_one()
    same = events_table.c.task_id.is_(None) if task is None else events_table.c.task_id == task
    last = select(events_table.c.event_id).where(same).order_by(events_table.c.event_id.desc()).offset(keep).limit(1)
    tx.execute(delete(events_table).where(same, events_table.c.event_id <= last.scalar_subquery()))
    return event_id


def probe(tx: Connection) -> None:
    """Write and delete as many bytes as a session's body may have: a small row may still fit on a full disk."""
    take_turn(tx, Turn.EVENTS)
    event_id = tx.execute(_ADD, {"at": 0.0, "kind": "probe", "data": secrets.token_hex(_PROBE_BYTES // 2)}).scalar_one()
    tx.execute(delete(events_table).where(events_table.c.event_id == event_id))


def events(tx: Connection, *, after_id: int = 0, limit: int = 100, task: bytes | None = None) -> list[Event]:
    """Return the events after a number, in order; with `task`, only those about it or about the server."""
    chosen = _AFTER if task is None else _AFTER.where(_about(task))
    rows = tx.execute(chosen.limit(limit), {"after": after_id})
    return [Event(row.event_id, row.at, row.kind, json.loads(row.data)) for row in rows]


def recent_events(
    tx: Connection, kind: str, *, limit: int = 100, at: float | None = None, task: bytes | None = None
) -> list[Event]:
    """Return the newest events of a kind, newest first.

    With `at`, only those with this time; with `task`, only those about it or about the server.
    """
    chosen = _NEWEST.where(events_table.c.kind == kind)
    chosen = chosen if task is None else chosen.where(_about(task))
    rows = tx.execute((chosen if at is None else chosen.where(events_table.c.at == at)).limit(limit))
    return [Event(row.event_id, row.at, row.kind, json.loads(row.data)) for row in rows]


def _about(task: bytes) -> ColumnElement[bool]:
    return or_(events_table.c.task_id == task, events_table.c.task_id.is_(None))


def _text(data: Mapping[str, Any]) -> str:
    try:
        text = _json(data)
    except (TypeError, ValueError):
        raise LedgerFormatError("event data must be valid JSON, without bytes or NaN") from None
    if len(text) > _LONGEST:
        raise LedgerFormatError(f"event data must be at most {_LONGEST} characters")
    return text


def record_action(
    tx: Connection, order: Order, what: str, facts: Mapping[str, Any], now: float, *, task: bytes | None = None
) -> None:
    """Record an operator's change, in the same transaction as the change if there is one; the row is never removed.

    Facts must not contain secrets or tokens.
    """
    row = {"at": now, "by": order.by, "what": what, "reason": order.reason, "data": _json(facts), "task_id": task}
    tx.execute(_ADD_ACTION, row)


def actions(tx: Connection, *, limit: int = 100, before: int | None = None) -> list[Action]:
    """Return operators' actions, newest first."""
    chosen = _NEWEST_ACTIONS if before is None else _NEWEST_ACTIONS.where(actions_table.c.action_id < before)
    return [Action(**{**row, "data": json.loads(row["data"])}) for row in tx.execute(chosen.limit(limit)).mappings()]


def _json(facts: Mapping[str, Any]) -> str:
    return json.dumps(dict(facts), allow_nan=False, sort_keys=True, separators=(",", ":"))
