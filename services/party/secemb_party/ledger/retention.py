"""Rows that grow without end: sessions of rounds that ended long ago, and of tasks that are no longer served.

Rounds stay: their number, kind, digests and sealed list are what the privacy accountant counts, and what the other
server compares. Of an old session only its digests are left, which show an upload that was sent again.
"""

from collections.abc import Sequence

from sqlalchemy import Connection, bindparam, delete, or_, select

from secemb_party.ledger.schema import answers, bodies, rounds, sessions

FORGET_AT_ONCE = 500  # sessions in a transaction: others wait for one batch

_OLD = (
    select(sessions.c.session_id, sessions.c.round_id)
    .select_from(rounds.join(sessions, sessions.c.round_id == rounds.c.round_id))
    .where(or_(rounds.c.ended_at < bindparam("before"), rounds.c.task_id.in_(bindparam("tasks", expanding=True))))
    .limit(FORGET_AT_ONCE)
)
_FORGET_BODIES = delete(bodies).where(bodies.c.session_id.in_(bindparam("names", expanding=True)))
_FORGET = delete(sessions).where(sessions.c.session_id.in_(bindparam("names", expanding=True)))
_FORGET_ANSWERS = delete(answers).where(answers.c.key.in_(bindparam("names", expanding=True)))


def forget_sessions(tx: Connection, *, ended_before: float, tasks: Sequence[bytes] = ()) -> int:
    """Remove some sessions of rounds that ended before a time or belong to these tasks; return how many."""
    found = tx.execute(_OLD, {"before": ended_before, "tasks": list(tasks)}).all()
    if found:
        names = {"names": [row.session_id for row in found]}
        tx.execute(_FORGET_BODIES, names)
        tx.execute(_FORGET, names)
        tx.execute(_FORGET_ANSWERS, {"names": sorted({f"prepared:{row.round_id.hex()}" for row in found})})
    return len(found)
