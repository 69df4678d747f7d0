"""Tasks, the versions of their models, and rollbacks to an older version."""

from typing import Any

from sqlalchemy import Connection, Row, RowMapping, bindparam, select, update

from secemb_party.errors import LedgerConflictError, NotRecordedError
from secemb_party.ledger.database import insert_new, writes_alone
from secemb_party.ledger.events import record_action
from secemb_party.ledger.records import ModelVersion, Rollback, TaskRecord, TaskState
from secemb_party.ledger.schema import model_versions as versions_table
from secemb_party.ledger.schema import rollbacks as rollbacks_table
from secemb_party.ledger.schema import tasks as tasks_table
from secemb_party.operators import Order

_TASK = select(tasks_table).where(tasks_table.c.task_id == bindparam("task"))
_TASKS = select(tasks_table).order_by(tasks_table.c.added_at, tasks_table.c.task_id)


def add_task(tx: Connection, task_id: bytes, spec: bytes, now: float) -> TaskRecord:
    """Record a task; repeating it changes nothing, and a different specification under its id is refused."""
    insert_new(tx, tasks_table, {"task_id": task_id, "spec": spec, "added_at": now})
    record = find_task(tx, task_id)
    if record.spec != spec:
        raise LedgerConflictError("this task id is already in the ledger with a different specification")
    return record


def task(tx: Connection, task_id: bytes) -> TaskRecord | None:
    """Return a task, or None."""
    row = tx.execute(_TASK, {"task": task_id}).mappings().one_or_none()
    return _task(row) if row is not None else None


def tasks(tx: Connection) -> list[TaskRecord]:
    """Return all tasks, oldest first."""
    return [_task(row) for row in tx.execute(_TASKS).mappings()]


def _task(row: RowMapping) -> TaskRecord:
    return TaskRecord(**{**row, "state": None if row["state"] is None else TaskState(row["state"])})


def find_task(tx: Connection, task_id: bytes) -> TaskRecord:
    """Return a task, which must exist."""
    record = task(tx, task_id)
    if record is None:
        raise NotRecordedError("this task is not in the ledger")
    return record


_LOCK_TASK = select(tasks_table.c.task_id).where(tasks_table.c.task_id == bindparam("task"))
_LOCK_TASK = _LOCK_TASK.with_for_update(key_share=True)  # others may still refer to the task in the meantime
_NEWEST_FIRST = (
    select(versions_table)
    .where(versions_table.c.task_id == bindparam("task"))
    .order_by(versions_table.c.version.desc())
)
_VERSION = _NEWEST_FIRST.where(versions_table.c.version == bindparam("number"))
_PUBLISHED = _NEWEST_FIRST.where(versions_table.c.published_at.is_not(None)).limit(1)
_PUBLISH = (
    update(versions_table)
    .where(versions_table.c.task_id == bindparam("task"), versions_table.c.version == bindparam("number"))
    .values(published_at=bindparam("now"))
)


def record_version(tx: Connection, task_id: bytes, version: int, digest: bytes, now: float) -> ModelVersion:
    """Record the digest of a model version; repeating it changes nothing, and a different digest is refused."""
    find_task(tx, task_id)
    row = {"task_id": task_id, "version": version, "digest": digest, "recorded_at": now}
    insert_new(tx, versions_table, row)
    record = _find_version(tx, task_id, version)
    if record.digest != digest:
        raise LedgerConflictError(f"version {version} of this task is already in the ledger with a different digest")
    return record


def publish_version(tx: Connection, task_id: bytes, version: int, now: float) -> ModelVersion:
    """Publish a version; repeating it changes nothing, and a version older than the published one is refused."""
    lock_task(tx, task_id)
    record = _find_version(tx, task_id, version)
    if record.published_at is not None:
        return record
    newest = published_version(tx, task_id)
    if newest is not None and newest.version > version:
        raise LedgerConflictError(
            f"version {newest.version} has been published, so version {version} can no longer be published"
        )
    tx.execute(_PUBLISH, {"task": task_id, "number": version, "now": now})
    return _find_version(tx, task_id, version)


def lock_task(tx: Connection, task_id: bytes) -> None:
    """Wait until no other transaction changes which version of a task devices see."""
    if not writes_alone(tx):
        tx.execute(_LOCK_TASK, {"task": task_id})


def published_version(tx: Connection, task_id: bytes) -> ModelVersion | None:
    """Return the newest version that devices may see, or None."""
    row = tx.execute(_PUBLISHED, {"task": task_id}).mappings().one_or_none()
    return ModelVersion(**row) if row is not None else None


def versions(tx: Connection, task_id: bytes) -> list[ModelVersion]:
    """Return all versions of a task, newest first."""
    return [ModelVersion(**row) for row in tx.execute(_NEWEST_FIRST, {"task": task_id}).mappings()]


def _find_version(tx: Connection, task_id: bytes, version: int) -> ModelVersion:
    row = tx.execute(_VERSION, {"task": task_id, "number": version}).mappings().one_or_none()
    if row is None:
        raise NotRecordedError(f"version {version} of this task is not in the ledger")
    return ModelVersion(**row)


_OF_TASK = select(rollbacks_table).where(rollbacks_table.c.task_id == bindparam("task"))
_ONE = _OF_TASK.where(rollbacks_table.c.seen == bindparam("seen_"), rollbacks_table.c.source == bindparam("source_"))
_OPEN = _OF_TASK.where(rollbacks_table.c.ended_at.is_(None))
_NEWEST = _OF_TASK.order_by(rollbacks_table.c.wished_at.desc(), rollbacks_table.c.seen.desc())


def request_rollback(tx: Connection, task_id: bytes, *, seen: int, source: int, order: Order, now: float) -> Rollback:
    """Record a request to go back to an older version; the same request again returns its outcome."""
    lock_task(tx, task_id)
    if (held := _find(tx, task_id, seen=seen, source=source)) is not None:
        return held
    published = published_version(tx, task_id)
    if published is None or published.version != seen:
        raise LedgerConflictError("another version has been published in the meantime")
    if not insert_new(tx, rollbacks_table, {"task_id": task_id, "seen": seen, "source": source, "wished_at": now}):
        raise LedgerConflictError("another rollback is already pending")
    record_action(tx, order, "rollback", {"seen": seen, "source": source}, now, task=task_id)
    return _known(tx, task_id, seen=seen, source=source)


def open_rollback(tx: Connection, task_id: bytes) -> Rollback | None:
    """Return the open request, or None."""
    row = tx.execute(_OPEN, {"task": task_id}).one_or_none()
    return None if row is None else _record(row)


def finish_rollback(tx: Connection, rollback: Rollback, *, made: int, now: float) -> Rollback:
    """Publish the version with the old numbers; this completes the request."""
    publish_version(tx, rollback.task_id, made, now)
    return _end(tx, rollback, {"made": made, "ended_at": now})


def give_up_rollback(tx: Connection, rollback: Rollback, *, reason: str, now: float) -> Rollback:
    """Abandon a request that cannot be carried out; the model is unchanged."""
    return _end(tx, rollback, {"reason": reason, "ended_at": now})


def rollbacks(tx: Connection, task_id: bytes, *, limit: int = 20) -> list[Rollback]:
    """Return the requests, newest first."""
    return [_record(row) for row in tx.execute(_NEWEST.limit(limit), {"task": task_id})]


def _end(tx: Connection, rollback: Rollback, facts: dict[str, Any]) -> Rollback:
    key = {"seen": rollback.seen, "source": rollback.source}
    held = _known(tx, rollback.task_id, **key)
    if held.ended:
        return held
    chosen = [rollbacks_table.c[name] == value for name, value in ({"task_id": rollback.task_id} | key).items()]
    tx.execute(update(rollbacks_table).where(*chosen).values(facts))
    return _known(tx, rollback.task_id, **key)


def _known(tx: Connection, task_id: bytes, *, seen: int, source: int) -> Rollback:
    found = _find(tx, task_id, seen=seen, source=source)
    if found is None:
        raise NotRecordedError("this rollback is not in the ledger")
    return found


def _find(tx: Connection, task_id: bytes, *, seen: int, source: int) -> Rollback | None:
    row = tx.execute(_ONE, {"task": task_id, "seen_": seen, "source_": source}).one_or_none()
    return None if row is None else _record(row)


def _record(row: Row[Any]) -> Rollback:
    return Rollback(**row._mapping)
