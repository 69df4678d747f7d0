"""Tasks: the training jobs this server takes part in."""

from sqlalchemy import Connection, bindparam, select

from secemb_party.ledger.errors import LedgerConflictError, NotRecordedError
from secemb_party.ledger.inserts import insert_new
from secemb_party.ledger.prepared import Prepared
from secemb_party.ledger.records import TaskRecord
from secemb_party.ledger.tables import tasks as table

_TASK = Prepared(select(table).where(table.c.task_id == bindparam("task")))
_TASKS = select(table).order_by(table.c.added_at, table.c.task_id)


def add_task(tx: Connection, task_id: bytes, spec: bytes, now: float) -> TaskRecord:
    """Remember a task; the same again changes nothing, another specification under its id is refused."""
    insert_new(tx, table, {"task_id": task_id, "spec": spec, "added_at": now})
    record = find_task(tx, task_id)
    if record.spec != spec:
        raise LedgerConflictError("this task id is held with another specification")
    return record


def task(tx: Connection, task_id: bytes) -> TaskRecord | None:
    """Return a task, or None."""
    rows = _TASK.records(tx, {"task": task_id})
    return TaskRecord(**rows[0]) if rows else None


def tasks(tx: Connection) -> list[TaskRecord]:
    """Return every task, the oldest first."""
    return [TaskRecord(**row._mapping) for row in tx.execute(_TASKS)]


def find_task(tx: Connection, task_id: bytes) -> TaskRecord:
    """Return a task that must be there."""
    record = task(tx, task_id)
    if record is None:
        raise NotRecordedError("the ledger does not know this task")
    return record
