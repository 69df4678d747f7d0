"""A task in numbers and words, as two operators compare it before they agree on it."""

from typing_extensions import TypedDict

from secemb_party.accountant import epsilon_known
from secemb_party.budget import lines_of
from secemb_shared.layout import loss_bound
from secemb_shared.messages import Sizes, TaskSpec
from secemb_shared.row_words import HALF

BYTES_ARE = "messages of one round, without HTTP headers (less than 1,024 bytes per request in each direction)"


class TaskSummary(TypedDict):
    """A task in numbers and words."""

    task_id: str
    name: str
    items: int
    row_width: int
    dense_size: int
    capacity: int
    layout: str
    slots: int
    leaves_per_server_and_device: int
    loss_bound: float
    bytes_up_per_device: int
    bytes_down_per_device: int
    transport: str
    relay_key: str
    identity0: str
    predecessor: str
    bytes_up_relayed: int
    bytes_down_relayed: int
    bytes_are: str
    clip: float
    norm_bound: str
    precision: float
    row_numbers: str
    overflow_budget: str
    cohort: int
    min_cohort: int
    rounds: int
    join_seconds: int
    upload_seconds: int
    loss: str
    optimiser: str
    guard: str
    schedule: str
    decay: str
    seed: int
    initial_scale: str
    ratings: str
    catalogue: str
    privacy: str
    privacy_known: str


def describe_task(task: TaskSpec) -> TaskSummary:
    """Return the facts that two operators should check before they agree on a task."""
    sizes, geometry, ring = Sizes.of(task), task.geometry, task.ring
    privacy = task.privacy
    tail = 0 if privacy is None else max(privacy.rows.tail, privacy.dense.tail)
    largest = task.cohort * task.bound + tail
    return {
        "task_id": task.task_id.hex(),
        "name": task.name,
        "items": task.items,
        "row_width": task.row_width,
        "dense_size": task.dense_size,
        "capacity": task.capacity,
        "layout": _describe_layout(task),
        "slots": geometry.slots,
        "leaves_per_server_and_device": geometry.slots * geometry.leaves,
        "loss_bound": _placement_loss(task),
        "bytes_up_per_device": sizes.upload,
        "bytes_down_per_device": sizes.download + 4 * task.dense_size,
        "transport": _describe_transport(task),
        "relay_key": task.relay_key or "none: created without --server1",
        "identity0": task.identity0 or "none: created without --server0; the task cannot have a successor",
        "predecessor": task.predecessor or "none: the first task of its chain",
        "bytes_up_relayed": sizes.relayed_upload,
        "bytes_down_relayed": sizes.relayed_download + 4 * task.dense_size,
        "bytes_are": BYTES_ARE,
        "clip": task.bound / 2**task.fraction_bits,
        "norm_bound": _describe_norm_bound(task),
        "precision": 2.0**-task.fraction_bits,
        "row_numbers": "float16: devices read rounded rows" if task.row_bits == HALF else "float32",
        "overflow_budget": f"{largest / ring.half:.1%} of 2^{task.ring_bits - 1} used by the largest possible sum",
        "cohort": task.cohort,
        "min_cohort": task.min_cohort,
        "rounds": task.rounds,
        "join_seconds": task.join_seconds,
        "upload_seconds": task.upload_seconds,
        "loss": task.loss,
        "optimiser": f"{task.optimiser}, rows {task.row_rate}, biases {task.bias_rate}, dense {task.dense_rate}",
        "guard": "none" if task.guard == "0" else f"{task.guard} times what is usual for a row",
        "schedule": task.schedule,
        "decay": f"rows {task.row_decay}, biases {task.bias_decay}",
        "seed": task.seed,
        "initial_scale": task.initial_scale,
        "ratings": _describe_scale(task),
        "catalogue": task.catalogue or "none: created without --catalogue; devices recommend row numbers",
        "privacy": _describe_privacy(task),
        "privacy_known": _describe_known(task),
    }


def _describe_scale(task: TaskSpec) -> str:
    return f"from {task.lowest or 'any'} to {task.highest or 'any'}, centre {task.centre}, spread {task.spread}"


def _describe_privacy(task: TaskSpec) -> str:
    if task.privacy is None:
        return "none: sums are exact; created without --privacy"
    chance = f", devices take part with probability {task.privacy.sampling_rate}" if task.privacy.sampling_rate else ""
    lines = [
        f"{line.kind}: ε {line.budget:g} for {line.rounds():,} rounds, noise {line.terms.multiplier:g} times the clip"
        for line in lines_of(task).values()
    ]
    return f"for each {task.privacy.unit}, δ {task.privacy.delta}{chance}; {'; '.join(lines)}"


def _describe_known(task: TaskSpec) -> str:
    """Return the guarantee of the same rounds against someone who knows which devices took part."""
    if task.privacy is None or not task.privacy.sampling_rate:
        return "the same: no assumption about which devices take part"
    costs = [f"{line.kind}: ε {epsilon_known(line.terms, line.rounds()):.3g}" for line in lines_of(task).values()]
    return f"{'; '.join(costs)}, against anyone who knows which devices took part: server 0 with enrolment tokens"


def warning_of(task: TaskSpec) -> str | None:
    """Return a warning for operators about a sampling rate."""
    if task.privacy is None or not task.privacy.sampling_rate:
        return None
    return (
        f"with a sampling rate, ε holds only in a large fleet, where {task.privacy.sampling_rate} of all devices is "
        f"well above --min-cohort ({task.min_cohort:,}): rounds with fewer are aborted at no cost, and the number of "
        "sessions tells an observer slightly more than the accounting covers (docs/privacy.md)"
    )


def _describe_norm_bound(task: TaskSpec) -> str:
    if not task.norm_bound:
        return "none: a device can write any number into its rows"
    return f"{task.norm_bound / 2**task.fraction_bits:g}: much longer updates are rejected"


def _describe_transport(task: TaskSpec) -> str:
    relayed = "relayed or direct: devices may send everything through server 0"
    return relayed if task.relays else "direct: devices call both servers"


def _describe_layout(task: TaskSpec) -> str:
    if task.geometry.is_direct:
        return "direct: each slot's tree spans the catalogue"
    return f"binned: {task.tables} tables of {task.bins} bins of at most {task.geometry.leaves} items"


def _placement_loss(task: TaskSpec) -> float:
    if task.geometry.is_direct:
        return 0.0
    return loss_bound(items=task.items, capacity=task.capacity, tables=task.tables, bins=task.bins)
