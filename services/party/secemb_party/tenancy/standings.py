"""The state of tasks on one server: whether they should run, and whether they are ready."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from secemb_party.ledger import TaskRecord, TaskState
from secemb_party.service import Check
from secemb_party.tenancy.places import TaskPlace


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskStanding:
    """A task that this server knows."""

    task_id: bytes
    name: str
    state: str  # running, succeeded, stopped, archived, failed, or new if it was never started
    in_settings: bool
    fault: str | None = None  # why it cannot run


def should_run(record: TaskRecord | None, place: TaskPlace) -> bool:
    """Return whether a task runs from the start: operators decide, and otherwise the settings."""
    if record is None or record.state is None:
        return place.in_settings
    return record.state is TaskState.RUNNING


def merge(found: Mapping[str, Sequence[Check]]) -> list[Check]:
    """Return the checks of several tasks as one list; what is wrong with one task alone does not stop the others."""
    everywhere = [one for one in next(iter(found.values())) if all(one in checks for checks in found.values())]
    some_work = any(all(one.ok for one in checks) for checks in found.values())
    single = [
        Check(f"{one.check} of task {short}", one.ok, one.hint, blocks=not some_work)
        for short, checks in found.items()
        for one in checks
        if one not in everywhere
    ]
    return [*everywhere, *single]
