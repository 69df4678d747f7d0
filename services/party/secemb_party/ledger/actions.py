"""What operators did: who, what, when and why. Unlike events, these rows are never removed."""

import json
from collections.abc import Mapping
from typing import Any

from sqlalchemy import Connection, insert, select

from secemb_party.ledger.records import Action
from secemb_party.ledger.schema import actions as actions_table
from secemb_party.operators import Order

_ADD = insert(actions_table)
_NEWEST = select(actions_table).order_by(actions_table.c.action_id.desc())


def record_action(tx: Connection, order: Order, what: str, facts: Mapping[str, Any], now: float) -> None:
    """Record a change, in the transaction that makes it wherever there is one. Facts hold no secret and no token."""
    data = json.dumps(dict(facts), allow_nan=False, sort_keys=True, separators=(",", ":"))
    tx.execute(_ADD, {"at": now, "by": order.by, "what": what, "reason": order.reason, "data": data})


def actions(tx: Connection, *, limit: int = 100, before: int | None = None) -> list[Action]:
    """Return what operators did, the newest first."""
    chosen = _NEWEST if before is None else _NEWEST.where(actions_table.c.action_id < before)
    return [Action(**{**row, "data": json.loads(row["data"])}) for row in tx.execute(chosen.limit(limit)).mappings()]
