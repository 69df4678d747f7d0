"""Which tasks a server runs: operators start, stop and archive them.

    (settings) ─┐
                ├─> running <──> stopped ──> archived
    start ──────┘

A task that the settings name runs without a decision. The rows of a task are kept in every state: they are its budget.
"""

from sqlalchemy import Connection, bindparam, update

from secemb_party.ledger.events import append_event, record_action
from secemb_party.ledger.records import RoundState, TaskRecord, TaskState
from secemb_party.ledger.rounds import advance, last_round
from secemb_party.ledger.schema import tasks as tasks_table
from secemb_party.ledger.tasks import add_task, find_task, lock_task
from secemb_party.operators import Order
from secemb_party.tenancy.errors import TaskControlError

EVENT = "control"
_SET = update(tasks_table).where(tasks_table.c.task_id == bindparam("task")).values(state=bindparam("state_"))


def start_task(tx: Connection, task_id: bytes, spec: bytes, order: Order, now: float) -> TaskRecord:
    """Record that a task runs; repeating it changes nothing."""
    add_task(tx, task_id, spec, now)
    lock_task(tx, task_id)
    if find_task(tx, task_id).state is TaskState.ARCHIVED:
        raise TaskControlError("this task was archived and its model removed; create its successor or a new task")
    return _decide(tx, task_id, TaskState.RUNNING, "task start", order, now)


def stop_task(tx: Connection, task_id: bytes, order: Order, now: float) -> TaskRecord:
    """Record that a task no longer runs. An unfinished round stays as it is, and continues when the task is started."""
    lock_task(tx, task_id)
    if find_task(tx, task_id).state is TaskState.ARCHIVED:
        raise TaskControlError("this task was archived, so it is not running")
    return _decide(tx, task_id, TaskState.STOPPED, "task stop", order, now)


def archive_task(tx: Connection, task_id: bytes, order: Order, now: float) -> TaskRecord:
    """Record that a stopped task never runs again; a round that still accepts sessions is aborted."""
    lock_task(tx, task_id)
    state, last = find_task(tx, task_id).state, last_round(tx, task_id)
    if state not in (TaskState.STOPPED, TaskState.ARCHIVED):
        raise TaskControlError("only a stopped task can be archived; stop it first with `secemb task stop`")
    if last is not None and not last.ended:
        if last.state is not RoundState.OPEN:
            raise TaskControlError(
                f"round {last.number} is {last.state}, and both servers must finish it; start the task again on both,"
                " wait for the end of the round, then stop and archive it"
            )
        reason = f"the task was archived: {order.reason}"[:500]
        advance(tx, last.round_id, RoundState.OPEN, RoundState.ABORTED, now, reason=reason, order=order)
    return _decide(tx, task_id, TaskState.ARCHIVED, "task archive", order, now)


def _decide(tx: Connection, task_id: bytes, state: TaskState, what: str, order: Order, now: float) -> TaskRecord:
    if find_task(tx, task_id).state is not state:
        tx.execute(_SET, {"task": task_id, "state_": state})
        record_action(tx, order, what, {}, now, task=task_id)
        append_event(tx, EVENT, {"what": what, "by": order.by, "reason": order.reason}, now, task=task_id)
    return find_task(tx, task_id)
