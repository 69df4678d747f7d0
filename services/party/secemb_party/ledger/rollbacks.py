"""Going back to an older version of the model: one wish at a time, each recorded before anything is done about it."""

from typing import Any

from sqlalchemy import Connection, Row, bindparam, select, update

from secemb_party.ledger.errors import LedgerConflictError, NotRecordedError
from secemb_party.ledger.inserts import insert_new
from secemb_party.ledger.records import Rollback
from secemb_party.ledger.tables import rollbacks as table
from secemb_party.ledger.versions import lock_task, publish_version, published_version

_OF_TASK = select(table).where(table.c.task_id == bindparam("task"))
_ONE = _OF_TASK.where(table.c.seen == bindparam("seen_"), table.c.source == bindparam("source_"))
_OPEN = _OF_TASK.where(table.c.ended_at.is_(None))
_NEWEST = _OF_TASK.order_by(table.c.wished_at.desc(), table.c.seen.desc())


def wish_rollback(tx: Connection, task_id: bytes, *, seen: int, source: int, now: float) -> Rollback:
    """Remember that an older version is wanted; the same wish again returns what became of it."""
    lock_task(tx, task_id)
    if (held := _find(tx, task_id, seen=seen, source=source)) is not None:
        return held
    published = published_version(tx, task_id)
    if published is None or published.version != seen:
        raise LedgerConflictError("another version has been published meanwhile")
    if not insert_new(tx, table, {"task_id": task_id, "seen": seen, "source": source, "wished_at": now}):
        raise LedgerConflictError("another rollback is waiting")
    return _known(tx, task_id, seen=seen, source=source)


def open_rollback(tx: Connection, task_id: bytes) -> Rollback | None:
    """Return the wish that nothing has become of yet, or None."""
    row = tx.execute(_OPEN, {"task": task_id}).one_or_none()
    return None if row is None else _record(row)


def finish_rollback(tx: Connection, rollback: Rollback, *, made: int, now: float) -> Rollback:
    """Publish the version that was made of the old numbers; with that the wish is fulfilled."""
    publish_version(tx, rollback.task_id, made, now)
    return _end(tx, rollback, {"made": made, "ended_at": now})


def give_up_rollback(tx: Connection, rollback: Rollback, *, reason: str, now: float) -> Rollback:
    """End a wish that cannot be fulfilled; the model stays as it is."""
    return _end(tx, rollback, {"reason": reason, "ended_at": now})


def rollbacks(tx: Connection, task_id: bytes, *, limit: int = 20) -> list[Rollback]:
    """Return what was wished for, the newest first."""
    return [_record(row) for row in tx.execute(_NEWEST.limit(limit), {"task": task_id})]


def _end(tx: Connection, rollback: Rollback, facts: dict[str, Any]) -> Rollback:
    key = {"seen": rollback.seen, "source": rollback.source}
    held = _known(tx, rollback.task_id, **key)
    if held.ended:
        return held
    chosen = [table.c[name] == value for name, value in ({"task_id": rollback.task_id} | key).items()]
    tx.execute(update(table).where(*chosen).values(facts))
    return _known(tx, rollback.task_id, **key)


def _known(tx: Connection, task_id: bytes, *, seen: int, source: int) -> Rollback:
    found = _find(tx, task_id, seen=seen, source=source)
    if found is None:
        raise NotRecordedError("the ledger does not know this rollback")
    return found


def _find(tx: Connection, task_id: bytes, *, seen: int, source: int) -> Rollback | None:
    row = tx.execute(_ONE, {"task": task_id, "seen_": seen, "source_": source}).one_or_none()
    return None if row is None else _record(row)


def _record(row: Row[Any]) -> Rollback:
    return Rollback(**row._mapping)
