"""Devices that were repeatedly in discarded rounds.

The sum of a round does not show which session spoiled it. If devices are in rounds by chance, the one that spoils them
is in all discarded rounds and few others.
"""

from collections.abc import Sequence

from sqlalchemy import Connection, bindparam, func, select

from secemb_party.ledger.records import Suspect
from secemb_party.ledger.schema import sessions, tokens

_LEAST = 2  # discarded rounds: being in a single one means nothing
_COUNT = func.count().label("times")
_IN_ROUNDS = (
    select(sessions.c.device, _COUNT)
    .where(
        sessions.c.round_id.in_(bindparam("rounds", expanding=True)),
        sessions.c.device.is_not(None),
        sessions.c.update_digest.is_not(None),
    )
    .group_by(sessions.c.device)
)
_OFTEN = _IN_ROUNDS.having(func.count() >= _LEAST).order_by(func.count().desc(), sessions.c.device)
_ALSO = _IN_ROUNDS.where(sessions.c.device.in_(bindparam("devices", expanding=True)))
_NAMES = select(tokens.c.device, tokens.c.name).where(tokens.c.device.in_(bindparam("devices", expanding=True)))


def suspects(
    tx: Connection, *, discarded: Sequence[bytes], published: Sequence[bytes], limit: int = 20
) -> list[Suspect]:
    """Return the devices that were in at least two of the discarded rounds, starting with those in fewest others."""
    found = {row.device: row.times for row in tx.execute(_OFTEN, {"rounds": list(discarded)})}
    chosen = {"devices": list(found)}
    others = {row.device: row.times for row in tx.execute(_ALSO, {"rounds": list(published), **chosen})}
    names = {row.device: row.name for row in tx.execute(_NAMES, chosen)}
    listed = [
        Suspect(device=device, name=names.get(device), discarded=count, published=others.get(device, 0))
        for device, count in found.items()
    ]
    return sorted(listed, key=lambda one: (-one.discarded / (one.discarded + one.published), -one.discarded))[:limit]
