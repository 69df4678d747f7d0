"""Operator tokens: added, listed and revoked on the server's own machine, and the actions of operators."""

import getpass
import time
from datetime import UTC, datetime
from typing import Any

from typing_extensions import TypedDict

from secemb_party.assembly import find_operators
from secemb_party.ledger import Ledger
from secemb_party.operators import Operator, OperatorRole, Operators, Order
from secemb_party.settings import Settings
from secemb_tools.errors import OperationError
from secemb_tools.operate.directory import new_operator

DAY = 86_400  # seconds


class NewOperator(TypedDict):
    """A new operator token, which is shown only once."""

    name: str
    role: str
    token: str
    expires: str | None


class OperatorRow(TypedDict):
    """The stored facts about an operator token."""

    name: str
    role: str
    state: str  # active, expired or revoked
    created: str | None
    expires: str | None
    revoked: str | None


class ActionRow(TypedDict):
    """An operator's action."""

    number: int
    at: str | None
    by: str
    what: str
    reason: str | None
    data: dict[str, Any]


async def add(settings: Settings, name: str, role: OperatorRole, *, days: int | None) -> NewOperator:
    """Add a token and return it: it cannot be shown again. A running server accepts it at once."""
    operators, now = _operators(settings), time.time()
    token, made = new_operator(name, role, now, None if days is None else now + days * DAY)
    operators.add(made)
    await _record(settings, "operator add", now, name=name, role=role.value)
    return {"name": name, "role": role.value, "token": token, "expires": when(made.expires_at)}


def list_all(settings: Settings) -> list[OperatorRow]:
    """Return every token's name, role, state and dates."""
    now = time.time()
    return [_row(one, now) for one in _operators(settings).all()]


async def revoke(settings: Settings, name: str) -> OperatorRow:
    """Revoke a token and end its logins."""
    now = time.time()
    revoked = _operators(settings).revoke(name, now)
    await _record(settings, "operator revoke", now, name=name)
    return _row(revoked, now)


async def list_actions(settings: Settings, limit: int) -> list[ActionRow]:
    """Return the actions of operators, newest first."""
    async with await open_ledger(settings) as ledger:
        found = await ledger.actions(limit=limit)
    return [
        {
            "number": one.action_id,
            "at": when(one.at),
            "by": one.by,
            "what": one.what,
            "reason": one.reason,
            "data": dict(one.data),
        }
        for one in found
    ]


def local_order(reason: str | None = None) -> Order:
    """Return who runs this command: whoever can write the server's files needs no token."""
    return Order(f"{getpass.getuser()}, on this machine"[:100], reason)


async def open_ledger(settings: Settings) -> Ledger:
    """Open the ledger of a server, which may be running."""
    settings.data_dir.mkdir(parents=True, exist_ok=True, mode=0o700)
    return await Ledger.open(settings.ledger_url(), migrate=settings.ledger.migrate)


def when(at: float | None) -> str | None:
    """Return a time as text."""
    return None if at is None else datetime.fromtimestamp(at, UTC).isoformat(timespec="seconds")


async def _record(settings: Settings, what: str, now: float, **facts: str) -> None:
    async with await open_ledger(settings) as ledger:
        await ledger.record_action(local_order(), what, facts, now)


def _operators(settings: Settings) -> Operators:
    found = find_operators(settings)
    if found is None:
        raise OperationError("this server has no operator interface; name a tokens_file in [operator] of its settings")
    return found


def _row(one: Operator, now: float) -> OperatorRow:
    state = "revoked" if one.revoked_at is not None else "active" if one.active(now) else "expired"
    return {
        "name": one.name,
        "role": one.role.value,
        "state": state,
        "created": when(one.created_at),
        "expires": when(one.expires_at),
        "revoked": when(one.revoked_at),
    }
