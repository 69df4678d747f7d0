"""Operators' instructions to this server that are in force: a pause, a drain, the end of one round."""

from sqlalchemy import Connection, bindparam, delete, select

from secemb_party.errors import StateConflictError
from secemb_party.ledger.database import insert_new
from secemb_party.ledger.events import append_event, record_action
from secemb_party.ledger.records import Instruction, RoundState, What
from secemb_party.ledger.rounds import find_round, lock_round
from secemb_party.ledger.schema import instructions as instructions_table
from secemb_party.operators import Order

EVENT = "control"
_LIFTED = {What.PAUSE: "resume", What.DRAIN: "drain end"}  # the name of the action that ends it
_OF_TASK = select(instructions_table).where(instructions_table.c.task_id == bindparam("task"))
_ONE = delete(instructions_table).where(
    instructions_table.c.task_id == bindparam("task"), instructions_table.c.what == bindparam("what_")
)
_OTHER_ROUND = _ONE.where(instructions_table.c.round_id != bindparam("round_"))


def instruct(
    tx: Connection, task_id: bytes, what: What, order: Order, now: float, *, round_id: bytes | None = None
) -> None:
    """Record an instruction, who gave it and why; repeating it changes nothing. The round must still be open."""
    told: dict[str, str | int | None] = {"what": what.value, "by": order.by, "reason": order.reason}
    if round_id is not None:
        lock_round(tx, round_id)
        found = find_round(tx, round_id)
        if found is None or found.state is not RoundState.OPEN:
            raise StateConflictError("the round is no longer open", found.state if found else RoundState.ABORTED)
        tx.execute(_OTHER_ROUND, {"task": task_id, "what_": what.value, "round_": round_id})
        told["round"] = found.number
    row = {"task_id": task_id, "what": what.value, "round_id": round_id, "by": order.by, "reason": order.reason}
    if insert_new(tx, instructions_table, row | {"at": now}):
        facts = {"round": told["round"]} if "round" in told else {}
        record_action(tx, order, what.value, facts, now, task=task_id)
        append_event(tx, EVENT, told, now, task=task_id)


def lift(tx: Connection, task_id: bytes, what: What, order: Order | None, now: float) -> bool:
    """Remove an instruction, and return whether there was one. Without an order, it was ended by a restart."""
    if tx.execute(_ONE, {"task": task_id, "what_": what.value}).rowcount != 1:
        return False
    told = {"by": order.by, "reason": order.reason} if order is not None else {"reason": "the server was restarted"}
    append_event(tx, EVENT, {"what": _LIFTED[what], **told}, now, task=task_id)
    if order is not None:
        record_action(tx, order, _LIFTED[what], {}, now, task=task_id)
    return True


def instructions(tx: Connection, task_id: bytes) -> dict[What, Instruction]:
    """Return the instructions in force."""
    rows = tx.execute(_OF_TASK, {"task": task_id}).mappings()
    found = [Instruction(**{**row, "what": What(row["what"])}) for row in rows]
    return {one.what: one for one in found}
