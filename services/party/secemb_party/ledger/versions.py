"""Versions of a task's model: which there are, and which one devices may see."""

from sqlalchemy import Connection, bindparam, select, update

from secemb_party.ledger.errors import LedgerConflictError, NotRecordedError
from secemb_party.ledger.inserts import insert_new
from secemb_party.ledger.prepared import Prepared, writes_alone
from secemb_party.ledger.records import ModelVersion
from secemb_party.ledger.tables import model_versions as table
from secemb_party.ledger.tables import tasks
from secemb_party.ledger.tasks import find_task

_LOCK_TASK = select(tasks.c.task_id).where(tasks.c.task_id == bindparam("task"))
_LOCK_TASK = _LOCK_TASK.with_for_update(key_share=True)  # others may still refer to the task meanwhile
_NEWEST_FIRST = select(table).where(table.c.task_id == bindparam("task")).order_by(table.c.version.desc())
_VERSIONS = Prepared(_NEWEST_FIRST)
_VERSION = Prepared(_NEWEST_FIRST.where(table.c.version == bindparam("number")))
_PUBLISHED = Prepared(_NEWEST_FIRST.where(table.c.published_at.is_not(None)).limit(1))
_PUBLISH = Prepared(
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
    _PUBLISH.change(tx, {"task": task_id, "number": version, "now": now})
    return _find_version(tx, task_id, version)


def lock_task(tx: Connection, task_id: bytes) -> None:
    """Wait until no other transaction changes which version of a task devices see."""
    if not writes_alone(tx):
        tx.execute(_LOCK_TASK, {"task": task_id})


def published_version(tx: Connection, task_id: bytes) -> ModelVersion | None:
    """Return the newest version that devices may see, or None."""
    rows = _PUBLISHED.records(tx, {"task": task_id})
    return ModelVersion(**rows[0]) if rows else None


def versions(tx: Connection, task_id: bytes) -> list[ModelVersion]:
    """Return every version of a task, the newest first."""
    return [ModelVersion(**row) for row in _VERSIONS.records(tx, {"task": task_id})]


def _find_version(tx: Connection, task_id: bytes, version: int) -> ModelVersion:
    rows = _VERSION.records(tx, {"task": task_id, "number": version})
    if not rows:
        raise NotRecordedError(f"the ledger does not know version {version} of this task")
    return ModelVersion(**rows[0])
