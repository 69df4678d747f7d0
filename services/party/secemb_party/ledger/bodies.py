"""The bodies of sessions as rows of the ledger's own database: stored in the transaction that records their digests."""

from collections.abc import Sequence
from functools import partial

from sqlalchemy import Connection, bindparam, delete, insert, select

from secemb_party.errors import NotRecordedError
from secemb_party.evaluation import SessionBodies
from secemb_party.ledger.database import Database
from secemb_party.ledger.schema import bodies, sessions
from secemb_party.storage.interfaces import KEYS, UPDATE, BodyNames, Step

DROP_AT_ONCE = 64  # bodies per transaction: other writers wait for one batch, not for the whole round

_IN_ROUND = bodies.join(sessions, sessions.c.session_id == bodies.c.session_id)
_ADD = insert(bodies)
_READ = (
    select(bodies.c.session_id, bodies.c.part, bodies.c.body)
    .select_from(_IN_ROUND)
    .where(
        sessions.c.round_id == bindparam("round"),
        bodies.c.session_id.in_(bindparam("session_ids", expanding=True)),
    )
)
_ROUNDS = select(sessions.c.round_id).distinct().select_from(_IN_ROUND)
_SOME = (
    select(bodies.c.session_id)
    .distinct()
    .select_from(_IN_ROUND)
    .where(sessions.c.round_id == bindparam("round"))
    .limit(DROP_AT_ONCE)
)
_DROP = delete(bodies).where(bodies.c.session_id.in_(_SOME))


class DatabaseBodies:
    """Bodies in the same database as the ledger's other tables."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def stage(self, round_id: bytes, session_id: bytes, part: str, digest: bytes, body: bytes) -> Step:
        """Return the step that stores a body; it runs only if the ledger records this body."""
        row = {"session_id": session_id, "part": part, "body": body}

        def store(tx: Connection) -> None:
            tx.execute(_ADD, row)

        return store

    async def read(self, round_id: bytes, names: Sequence[BodyNames]) -> list[SessionBodies]:
        """Return these bodies in this order; there is one per part, stored with its digest."""
        return await self._database.read(partial(_read, round_id, [one.session_id for one in names]))

    async def rounds(self) -> list[bytes]:
        """Return the rounds that still have bodies."""
        return await self._database.read(lambda tx: list(tx.execute(_ROUNDS).scalars()))

    async def drop(self, round_id: bytes) -> int:
        """Remove the bodies of a round in many small transactions, and return how many there were."""
        removed, some = 0, DROP_AT_ONCE
        while some >= DROP_AT_ONCE:  # up to two bodies per session: fewer mean a partial batch
            some = await self._database.write(lambda tx: tx.execute(_DROP, {"round": round_id}).rowcount)
            removed += some
        return removed


def _read(round_id: bytes, session_ids: Sequence[bytes], tx: Connection) -> list[SessionBodies]:
    rows = tx.execute(_READ, {"round": round_id, "session_ids": list(session_ids)})
    found = {(row.session_id, row.part): row.body for row in rows}
    try:
        return [SessionBodies(name, found[name, KEYS], found[name, UPDATE]) for name in session_ids]
    except KeyError:
        raise NotRecordedError("the message bodies of a session on the list have been deleted") from None
