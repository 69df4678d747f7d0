"""Successors of a running task: made from its specification and some changes, and agreed to on a server."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from typing_extensions import TypedDict

from secemb_shared.catalogue import FILE, digest_of
from secemb_shared.layout import DEFAULT_LOSS
from secemb_shared.messages import TaskSpec
from secemb_tools.errors import OperationError
from secemb_tools.operate.directory import PUBLIC, write_new
from secemb_tools.operate.operator_api import OperatorClient
from secemb_tools.operate.privacy import read_privacy
from secemb_tools.operate.tasks import check_budgets, check_training
from secemb_tools.specification import as_decimal, build_task, default_norm_bound, direct_geometry


class Agreement(TypedDict):
    """What the operator of a server has agreed to, and whether the servers have switched."""

    successor: str | None
    items: int | None
    kept: int | None  # rows
    new: int | None
    retired: int | None
    start: str | None
    budget: str | None
    agreement: str | None  # the same at both servers once both operators agree
    switched: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Changes:
    """What a successor changes; None leaves it as it is."""

    name: str | None = None
    items: int | None = None
    catalogue: bytes | None = None
    capacity: int | None = None
    placement_loss: float | None = None
    cohort: int | None = None
    min_cohort: int | None = None
    rounds: int | None = None
    join_seconds: int | None = None
    upload_seconds: int | None = None
    row_rate: float | None = None
    bias_rate: float | None = None
    dense_rate: float | None = None
    row_decay: float | None = None
    bias_decay: float | None = None
    privacy: Path | None = None


_PLAIN = ("name", "cohort", "min_cohort", "rounds", "join_seconds", "upload_seconds")
_DECIMAL = ("row_rate", "bias_rate", "dense_rate", "row_decay", "bias_decay")


def successor_of(task: TaskSpec, changes: Changes) -> TaskSpec:
    """Return the successor; an unsafe combination is refused with the reason."""
    if task.identities is None:
        raise OperationError(
            "this task cannot have a successor, because it does not name the identities of both servers; create the"
            " next one with --server0 and --server1"
        )
    items = _given(changes.items, task.items)
    capacity = _given(changes.capacity, task.capacity)
    fields: dict[str, Any] = {name: getattr(task, name) for name in TaskSpec.__dataclass_fields__}
    fields |= {name: value for name in _PLAIN if (value := getattr(changes, name)) is not None}
    fields |= {name: as_decimal(value) for name in _DECIMAL if (value := getattr(changes, name)) is not None}
    if changes.catalogue is not None:
        fields["catalogue"] = digest_of(changes.catalogue)
    if changes.privacy is not None:
        fields["privacy"] = read_privacy(changes.privacy, rounds=fields["rounds"], ring=task.ring)
    same_shape = (items, capacity) == (task.items, task.capacity) and changes.placement_loss is None
    if same_shape and changes.privacy is None:
        made = replace(task, **fields | {"predecessor": task.task_id.hex()})
    else:
        made = build_task(
            **{name: value for name, value in fields.items() if name not in ("tables", "bins")}
            | {
                "items": items,
                "capacity": capacity,
                "geometry": direct_geometry(items, capacity) if task.geometry.is_direct else None,
                "placement_loss": _given(changes.placement_loss, DEFAULT_LOSS),
                "norm_bound": _norm_bound(task, changed=capacity != task.capacity or changes.privacy is not None),
                "predecessor": task.task_id.hex(),
            }
        )
    if replace(made, predecessor=task.predecessor) == task:
        raise OperationError("nothing would change, so the task needs no successor; give --catalogue or another option")
    check_training(made)
    check_budgets(made)
    return made


def _norm_bound(task: TaskSpec, *, changed: bool) -> int | None:
    """Return the successor's norm bound; None for the default, if the task has the default of its own capacity."""
    usual = default_norm_bound(task.capacity, task.dense_size, task.fraction_bits)
    if task.privacy is not None:
        usual = task.privacy.longest(task.capacity)
    return None if changed and task.norm_bound == usual else task.norm_bound


def _given(value: Any, default: Any) -> Any:
    return default if value is None else value


def running_task(client: OperatorClient) -> TaskSpec:
    """Return the task that a server runs."""
    return TaskSpec.decode(client.get("overview")["task"].encode())


def agree(
    client: OperatorClient,
    task: TaskSpec,
    catalogue: bytes | None,
    *,
    start: str,
    budget: str,
    reason: str,
) -> Agreement:
    """Agree to a successor on a server."""
    body: Mapping[str, str | None] = {
        "task": task.encode().decode(),
        "catalogue": catalogue.decode() if catalogue is not None else None,
        "start": start,
        "budget": budget,
    }
    found: Agreement = client.send("successor", body, reason=reason)
    return found


def write_successor(task: TaskSpec, catalogue: bytes | None, out: Path) -> None:
    """Write the files of a successor, for the other operator."""
    if out.exists() and any(out.iterdir()):
        raise OperationError(f"{out} is not empty; choose another --out")
    write_new(out / "task.json", task.encode(), mode=PUBLIC)
    if catalogue is not None:
        write_new(out / FILE, catalogue, mode=PUBLIC)


def catalogue_beside(path: Path) -> bytes | None:
    """Return the catalogue beside a task's file, if there is one."""
    catalogue = path.with_name(FILE)
    return catalogue.read_bytes() if catalogue.is_file() else None
