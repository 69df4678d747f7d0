"""The outcomes of each device's sessions, by the hash of its first token, and which devices are suspended.

Only server 0 has rows here, and only for devices with a token. They let the operator distinguish a misbehaving device
from a misbehaving server: a device's refusals are all under one hash, those caused by a server are under many.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from sqlalchemy import Column, Connection, Update, bindparam, desc, select, update

from secemb_party.ledger.database import Turn, take_turn
from secemb_party.ledger.events import record_action
from secemb_party.ledger.records import Conduct
from secemb_party.ledger.schema import devices as devices_table
from secemb_party.ledger.schema import sessions, tokens
from secemb_party.operators import Order

_AT_ONCE = 500  # sessions per statement
_COLUMNS = devices_table.c
# In the order of `Conduct`; `joined` and similar names are unique to this table.
COUNTS: tuple[Column[Any], ...] = (
    _COLUMNS.joined,
    _COLUMNS.completed,
    _COLUMNS.refused,
    _COLUMNS.rejected,
    _COLUMNS.silent,
    _COLUMNS.joined_at,
    _COLUMNS.problem,
    _COLUMNS.problem_at,
    _COLUMNS.suspended_at,
)
NO_CONDUCT: Mapping[str, int] = dict.fromkeys(("joined", "completed", "refused", "rejected", "silent"), 0)

_OF_DEVICE = _COLUMNS.device == bindparam("device_")
_OF_SESSIONS = _COLUMNS.device.in_(
    select(sessions.c.device).where(sessions.c.session_id.in_(bindparam("session_ids", expanding=True)))
)
_JOIN = (
    update(devices_table)
    .where(_OF_DEVICE)
    .values(joined=_COLUMNS.joined + 1, silent=_COLUMNS.silent + 1, joined_at=bindparam("now"))
)
_HEAR = update(devices_table).where(_OF_DEVICE).values(silent=0)
_COMPLETE = update(devices_table).where(_OF_SESSIONS).values(completed=_COLUMNS.completed + 1, silent=0)
_UPDATED = (
    update(devices_table)
    .values(silent=0)
    .where(
        _COLUMNS.device.in_(
            select(sessions.c.device).where(
                sessions.c.round_id == bindparam("round"), sessions.c.update_digest.is_not(None)
            )
        )
    )
)
_BLAME: dict[str, Any] = {"problem": bindparam("slug"), "problem_at": bindparam("now")}
_REFUSE = update(devices_table).where(_OF_SESSIONS).values(refused=_COLUMNS.refused + 1, **_BLAME)
_REJECT = update(devices_table).where(_OF_SESSIONS).values(rejected=_COLUMNS.rejected + 1, **_BLAME)
_SUSPEND = (
    update(devices_table)
    .where(
        _COLUMNS.device.in_(select(tokens.c.device).where(tokens.c.name.in_(bindparam("names", expanding=True)))),
        _COLUMNS.suspended_at.is_(None),
    )
    .values(suspended_at=bindparam("now"))
)
_RESUME = (
    update(devices_table)
    .where(
        _COLUMNS.device.in_(select(tokens.c.device).where(tokens.c.name.in_(bindparam("names", expanding=True)))),
        _COLUMNS.suspended_at.is_not(None),
    )
    .values(suspended_at=None, silent=0)
)
_NOTABLE = (
    select(_COLUMNS.device, *COUNTS)
    .order_by(
        desc(_COLUMNS.rejected), desc(_COLUMNS.refused), desc(_COLUMNS.silent), desc(_COLUMNS.joined), _COLUMNS.device
    )
    .limit(bindparam("limit"))
)


def note_join(tx: Connection, device: bytes, now: float) -> None:
    """Count a session that a device has begun."""
    tx.execute(_JOIN, {"device_": device, "now": now})


def note_late(tx: Connection, device: bytes | None) -> None:
    """Record that a device was not silent, only too late."""
    if device is not None:
        tx.execute(_HEAR, {"device_": device})


def note_counted(tx: Connection, session_ids: Sequence[bytes]) -> None:
    """Count sessions that are part of a sum."""
    for some in _batches(session_ids):
        tx.execute(_COMPLETE, {"session_ids": some})


def note_aborted(tx: Connection, round_id: bytes) -> None:
    """Record that the devices that uploaded in a round without a sum were not silent."""
    tx.execute(_UPDATED, {"round": round_id})


def note_refusal(tx: Connection, session_id: bytes, slug: str, now: float) -> None:
    """Count a message that was refused, for the device of its session."""
    tx.execute(_REFUSE, {"session_ids": [session_id], "slug": slug, "now": now})


def note_rejections(tx: Connection, session_ids: Sequence[bytes], slug: str, now: float) -> None:
    """Count sessions that failed a check between the servers, for their devices."""
    for some in _batches(session_ids):
        tx.execute(_REJECT, {"session_ids": some, "slug": slug, "now": now})


def suspend_devices(tx: Connection, names: Sequence[str], order: Order, now: float) -> int:
    """Suspend devices, which then can neither join nor read; return how many were not suspended before."""
    return _change(tx, _SUSPEND, {"names": list(names), "now": now}, "token suspend", order, now)


def resume_devices(tx: Connection, names: Sequence[str], order: Order, now: float) -> int:
    """Let suspended devices take part again, and reset their count of silent sessions; return their number."""
    return _change(tx, _RESUME, {"names": list(names)}, "token resume", order, now)


def notable_devices(tx: Connection, *, limit: int) -> list[tuple[bytes, Conduct]]:
    """Return devices by hash, sorted by most rejected sessions, refused messages and silent sessions."""
    return [(row[0], Conduct(*row[1:])) for row in tx.execute(_NOTABLE, {"limit": limit})]


def _change(tx: Connection, statement: Update, values: dict[str, Any], what: str, order: Order, now: float) -> int:
    take_turn(tx, Turn.TOKENS)
    changed = int(tx.execute(statement, values).rowcount)
    if changed:
        record_action(tx, order, what, {"tokens": changed}, now)
    return changed


def _batches(session_ids: Sequence[bytes]) -> list[list[bytes]]:
    return [list(session_ids[at : at + _AT_ONCE]) for at in range(0, len(session_ids), _AT_ONCE)]
