"""What a task costs a device and each server: bytes from the specification, time from a short measurement here."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from typing_extensions import TypedDict

from secemb_party.evaluation import BATCH, Evaluation, KeysMessage, SessionBodies, Share
from secemb_sdk.round.session import DeviceSession
from secemb_shared.layout import Geometry, plan
from secemb_shared.messages import RoundSpec, Sizes, TaskSpec
from secemb_shared.messages.canonical import LARGEST_NUMBER
from secemb_tools.catalogues import choose
from secemb_tools.errors import OperationError
from secemb_tools.kernel import describe
from secemb_tools.operate.tasks import BYTES_ARE
from secemb_tools.specification import build_task
from secemb_tools.stopwatch import fastest

_SAMPLE = 8  # sessions that are added together in the measurement
_KEPT_VERSIONS = 2  # tagged tables in memory: the open round's, and the one that is being added up


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanInput:
    """A catalogue and a fleet."""

    items: int
    capacity: int
    width: int
    dense_size: int
    cohort: int
    fleet: int
    placement_loss: float
    ring_bits: int

    @classmethod
    def of(cls, catalogue: str | None, *, items: int | None, capacity: int | None, **more: Any) -> "PlanInput":
        """Return the input for one of the paper's catalogues, or for numbers."""
        if catalogue is not None:
            (known,) = choose([catalogue])
            items, capacity = items or known.items, capacity or known.capacity
        if items is None or capacity is None:
            raise OperationError("give --items and --capacity, or --catalogue")
        if capacity > items:
            raise OperationError("--capacity must be at most --items: a device cannot have more")
        return cls(items=items, capacity=capacity, **more)


class Cost(TypedDict):
    """What a task costs; bytes are per device and round."""

    items: int
    capacity: int
    layout: str
    slots: int
    loss_bound: float
    bytes_up_per_device: int
    bytes_down_per_device: int
    bytes_up_relayed: int
    bytes_down_relayed: int
    bytes_are: str
    bytes_up_whole_table: int
    bytes_down_whole_table: int
    kernel_seconds_per_device: float
    kernel_seconds_per_round: float
    rounds_until_everybody_took_part: int
    kernel_seconds_until_everybody_took_part: float
    memory_bytes: int
    stored_bytes_per_round: int
    kernel: str


def cost(given: PlanInput, *, seconds: float) -> Cost:
    """Return the figures; those with `seconds` in their names hold for this machine."""
    planned = plan(
        items=given.items,
        capacity=given.capacity,
        row_width=given.width,
        ring_bits=given.ring_bits,
        loss=given.placement_loss,
    )
    task = _task(given, planned.geometry)
    sizes, whole = Sizes.of(task), 4 * (given.items * given.width + given.dense_size)
    answering, adding = _measure(task, seconds)
    rounds = -(-given.fleet // given.cohort)
    return {
        "items": given.items,
        "capacity": given.capacity,
        "layout": f"{task.tables} tables of {task.bins} bins of at most {task.geometry.leaves} items",
        "slots": task.geometry.slots,
        "loss_bound": planned.loss,
        "bytes_up_per_device": sizes.upload,
        "bytes_down_per_device": sizes.download + 4 * given.dense_size,
        "bytes_up_relayed": sizes.relayed_upload,
        "bytes_down_relayed": sizes.relayed_download + 4 * given.dense_size,
        "bytes_are": BYTES_ARE,
        "bytes_up_whole_table": 2 * whole,
        "bytes_down_whole_table": whole,
        "kernel_seconds_per_device": answering + adding,
        "kernel_seconds_per_round": given.cohort * (answering + adding),
        "rounds_until_everybody_took_part": rounds,
        "kernel_seconds_until_everybody_took_part": given.fleet * (answering + adding),
        "memory_bytes": _memory(task),
        "stored_bytes_per_round": given.cohort * (sizes.keys + max(sizes.update) + sizes.answer),
        "kernel": describe().removeprefix("kernel: "),
    }


def _task(given: PlanInput, geometry: Geometry) -> TaskSpec:
    return build_task(
        name="plan",
        items=given.items,
        row_width=given.width,
        dense_size=given.dense_size,
        capacity=given.capacity,
        geometry=geometry,
        ring_bits=given.ring_bits,
        fraction_bits=8,
        bound=min(2 ** (given.ring_bits - 2) // given.cohort, LARGEST_NUMBER),
        cohort=given.cohort,
    )


def _measure(task: TaskSpec, seconds: float) -> tuple[float, float]:
    """Return the seconds that one server's kernel takes for one device: to answer its keys, and to add its update."""
    round_ = RoundSpec(task=task, number=1, model_version=1, model_digest=bytes(32))
    table = np.random.default_rng(1).normal(0, 1, (task.items, task.row_width)).astype(np.float32)
    evaluation, share = Evaluation.prepare(round_, 0, table), Share.empty(round_)
    items = np.arange(task.capacity, dtype=np.int64)
    sessions = [DeviceSession(round_, items) for _ in range(min(_SAMPLE, BATCH, task.cohort))]
    uploads = [SessionBodies(one.session_id, one.keys[0], one.write_nothing()[0]) for one in sessions]
    keys = [KeysMessage(uploads[0].session_id, uploads[0].keys)]
    found = fastest({"answer": lambda: evaluation.answer(keys), "add": lambda: evaluation.add(uploads, share)}, seconds)
    return found["answer"], found["add"] / len(uploads)


def _memory(task: TaskSpec) -> int:
    """Return what a server holds at once: tables, sums, the optimiser's memory on server 0, and a batch of sessions."""
    numbers, sizes = task.items * task.row_width + task.dense_size, Sizes.of(task)
    tagged = 4 * task.items * (task.row_width + 1) * _KEPT_VERSIONS
    optimising = 3 * 4 * numbers + 2 * 8 * numbers  # model, two moments; the mean gradient in double precision
    sums = 2 * task.ring.element_bytes * numbers
    return tagged + optimising + sums + BATCH * (sizes.keys + max(sizes.update))
