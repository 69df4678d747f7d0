"""Versions of a task's model: which there are, and which one devices may see."""

from typing import Any

from sqlalchemy import Connection, Row, bindparam, select, update

from secemb_party.ledger.errors import LedgerConflictError, NotRecordedError
from secemb_party.ledger.inserts import insert_new
from secemb_party.ledger.records import ModelVersion
from secemb_party.ledger.tables import model_versions as table
from secemb_party.ledger.tables import tasks
from secemb_party.ledger.tasks import find_task

_LOCK_TASK = select(tasks.c.task_id).where(tasks.c.task_id == bindparam("task"))
_LOCK_TASK = _LOCK_TASK.with_for_update(key_share=True)  # others may still refer to the task meanwhile
_VERSIONS = select(table).where(table.c.task_id == bindparam("task")).order_by(table.c.version.desc())
_VERSION = _VERSIONS.where(table.c.version == bindparam("number"))
_PUBLISHED = _VERSIONS.where(table.c.published_at.is_not(None)).limit(1)
_PUBLISH = (
    update(table)
    .where(table.c.task_id == bindparam("task"), table.c.version == bindparam("number"))
    .values(published_at=bindparam("now"))
)


def record_version(tx: Connection, task_id: bytes, version: int, digest: bytes, now: float) -> ModelVersion:
    """Remember the digest of a model version; the same again changes nothing, another digest is refused."""
    find_task(tx, task_id)
    row = {"task_id": task_id, "version": version, "digest": digest, "recorded_at": now}
    insert_new(tx, table, row)
    record = _find_version(tx, task_id, version)
    if record.digest != digest:
        raise LedgerConflictError(f"version {version} of this task is held with another digest")
    return record


def publish_version(tx: Connection, task_id: bytes, version: int, now: float) -> ModelVersion:
    """Let devices see a version; the same again changes nothing, an older one than they see already is refused."""
    lock_task(tx, task_id)
    record = _find_version(tx, task_id, version)
    if record.published_at is not None:
        return record
    newest = published_version(tx, task_id)
    if newest is not None and newest.version > version:
        raise LedgerConflictError(f"version {newest.version} is published: version {version} can no longer be")
    tx.execute(_PUBLISH, {"task": task_id, "number": version, "now": now})
    return _find_version(tx, task_id, version)


def lock_task(tx: Connection, task_id: bytes) -> None:
    """Wait until no other transaction changes which version of a task devices see."""
    tx.execute(_LOCK_TASK, {"task": task_id})


def published_version(tx: Connection, task_id: bytes) -> ModelVersion | None:
    """Return the newest version that devices may see, or None."""
    row = tx.execute(_PUBLISHED, {"task": task_id}).one_or_none()
    return None if row is None else _record(row)


def versions(tx: Connection, task_id: bytes) -> list[ModelVersion]:
    """Return every version of a task, the newest first."""
    rows = tx.execute(_VERSIONS, {"task": task_id})
    return [_record(row) for row in rows]


def _find_version(tx: Connection, task_id: bytes, version: int) -> ModelVersion:
    row = tx.execute(_VERSION, {"task": task_id, "number": version}).one_or_none()
    if row is None:
        raise NotRecordedError(f"the ledger does not know version {version} of this task")
    return _record(row)


def _record(row: Row[Any]) -> ModelVersion:
    return ModelVersion(**row._mapping)
