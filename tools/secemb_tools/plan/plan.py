"""The cost of a task for a device and each server, and the limits that it exceeds."""

import os
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from typing_extensions import TypedDict

from secemb_shared.errors import OverflowBudgetError
from secemb_shared.layout import Geometry, plan
from secemb_shared.messages import Sizes, TaskSpec
from secemb_shared.messages.canonical import LARGEST_NUMBER
from secemb_shared.norm import NormShape
from secemb_shared.row_words import SINGLE
from secemb_tools.catalogues import choose
from secemb_tools.errors import OperationError
from secemb_tools.kernel import describe as describe_kernel
from secemb_tools.operate.task_summary import BYTES_ARE
from secemb_tools.plan import costs
from secemb_tools.plan.costs import REQUESTS, Stages, measure
from secemb_tools.plan.daily_load import Cluster, cluster, describe_cluster
from secemb_tools.specification import build_task, default_norm_bound, fraction_bits_of

_TLS = 5e-9  # seconds per byte between the servers, to encrypt, decrypt and copy it


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanInput:
    """A catalogue, a fleet, and the machines."""

    items: int
    capacity: int
    width: int
    dense_size: int
    cohort: int
    fleet: int
    placement_loss: float
    ring_bits: int
    fraction_bits: int = 16
    row_bits: int = SINGLE
    clip: float = 2.0
    upload_seconds: int = 600
    optimiser: str = "adam"
    devices_per_day: int | None = None  # None: no plan of a cluster
    memory: float | None = None  # GB of each server; None: the memory of this machine
    link: float = 1000.0  # Mbit/s between the servers

    @classmethod
    def of(cls, catalogue: str | None, *, items: int | None, capacity: int | None, **more: Any) -> "PlanInput":
        """Return the input for one of the paper's catalogues, or for given numbers."""
        if catalogue is not None:
            (known,) = choose([catalogue])
            items, capacity = items or known.items, capacity or known.capacity
        if items is None or capacity is None:
            raise OperationError("give --items and --capacity, or --catalogue")
        if capacity > items:
            raise OperationError("--capacity must be at most --items: a device cannot have more")
        if more.get("fraction_bits") is None:
            more["fraction_bits"] = fraction_bits_of(
                more["ring_bits"], capacity=capacity, dense_size=more["dense_size"]
            )
        return cls(items=items, capacity=capacity, **more)

    @property
    def bound(self) -> int:
        """Return the bound on one number of an update, in steps of the ring."""
        return int(self.clip * 2**self.fraction_bits)

    @property
    def memory_bytes(self) -> int:
        """Return the memory of each server."""
        if self.memory is not None:
            return int(self.memory * 1e9)
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


class Cost(TypedDict):
    """The cost of a task; times are for one core of this machine unless stated otherwise."""

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
    sessions_per_second: float
    seconds_to_prepare: float
    seconds_to_answer: float
    seconds_to_add: float
    seconds_to_share: float
    seconds_to_send_share: float
    seconds_to_step: float
    seconds_to_send_model: float
    seconds_to_publish: float
    seconds_from_seal_to_publish: float
    memory_bytes_server0: int
    memory_bytes_server1: int
    disk_bytes: int
    stored_bytes_per_round: int
    stored_bytes_per_version: int
    peer_bytes_per_round: int
    peer_bytes_per_round_relayed: int
    cluster: Cluster | None
    cannot: list[str]
    kernel: str


def cost(given: PlanInput, *, seconds: float) -> Cost:
    """Return the figures; those with `seconds` in their names apply to this machine."""
    planned = plan(
        items=given.items,
        capacity=given.capacity,
        row_width=given.width,
        ring_bits=given.ring_bits,
        row_bits=given.row_bits,
        loss=given.placement_loss,
    )
    task = _task(given, planned.geometry)
    sizes, whole = Sizes.of(task), 4 * (given.items * given.width + given.dense_size)
    stages = measure(task, seconds)
    session, rounds = stages.answer + stages.add, -(-given.fleet // given.cohort)
    per_byte = 1 / (125_000 * given.link) + _TLS
    sending = [one * per_byte for one in (task.ring.element_bytes * costs.numbers_of(task), costs.model_bytes(task))]
    adding = given.cohort * stages.add
    # Server 1 adds its sessions when server 0, which has added its own, asks for its share.
    after_the_seal = 2 * (adding + stages.share) + stages.step + stages.publish + sum(sending)
    up, down = sizes.upload, sizes.download + 4 * given.dense_size
    grown = None
    if given.devices_per_day is not None:
        grown = cluster(task, stages, devices=given.devices_per_day, after_the_seal=after_the_seal, up=up, down=down)
    return {
        "items": given.items,
        "capacity": given.capacity,
        "layout": f"{task.tables} tables of {task.bins} bins of at most {task.geometry.leaves} items",
        "slots": task.geometry.slots,
        "loss_bound": planned.loss,
        "bytes_up_per_device": up,
        "bytes_down_per_device": down,
        "bytes_up_relayed": sizes.relayed_upload,
        "bytes_down_relayed": sizes.relayed_download + 4 * given.dense_size,
        "bytes_are": BYTES_ARE,
        "bytes_up_whole_table": 2 * whole,
        "bytes_down_whole_table": whole,
        "kernel_seconds_per_device": session,
        "kernel_seconds_per_round": given.cohort * session,
        "rounds_until_everybody_took_part": rounds,
        "kernel_seconds_until_everybody_took_part": given.fleet * session,
        "sessions_per_second": 1 / (stages.answer + REQUESTS),
        "seconds_to_prepare": stages.prepare,
        "seconds_to_answer": given.cohort * stages.answer,
        "seconds_to_add": adding,
        "seconds_to_share": stages.share,
        "seconds_to_send_share": sending[0],
        "seconds_to_step": stages.step,
        "seconds_to_send_model": sending[1],
        "seconds_to_publish": stages.publish,
        "seconds_from_seal_to_publish": after_the_seal,
        "memory_bytes_server0": costs.memory_of_server0(task),
        "memory_bytes_server1": costs.memory_of_server1(task),
        "disk_bytes": costs.disk_of_server0(task),
        "stored_bytes_per_round": costs.stored_per_round(task),
        "stored_bytes_per_version": costs.stored_per_version(task),
        "peer_bytes_per_round": costs.peer_bytes(task),
        "peer_bytes_per_round_relayed": costs.peer_bytes(task) + costs.relayed_bytes(task),
        "cluster": grown,
        "cannot": list(_exceeded(given, task, stages)),
        "kernel": describe_kernel().removeprefix("kernel: "),
    }


def _task(given: PlanInput, geometry: Geometry) -> TaskSpec:
    # A bound that fits, so that the rest can be planned: `cannot` reports whether the requested one fits.
    return build_task(
        name="plan",
        items=given.items,
        row_width=given.width,
        dense_size=given.dense_size,
        capacity=given.capacity,
        geometry=geometry,
        ring_bits=given.ring_bits,
        row_bits=given.row_bits,
        fraction_bits=min(8, given.fraction_bits),
        bound=max(1, min(2 ** (given.ring_bits - 2) // given.cohort, LARGEST_NUMBER)),
        cohort=given.cohort,
        optimiser=given.optimiser,
        norm_bound=min(
            default_norm_bound(given.capacity, given.dense_size, given.fraction_bits),
            NormShape.largest_bound(given.ring_bits),
        ),
    )


def _exceeded(given: PlanInput, task: TaskSpec, stages: Stages) -> Iterator[str]:
    """Yield each limit that makes this impossible, with a remedy."""
    needed, there = costs.memory_of_server0(task), given.memory_bytes
    if needed > there:
        yield f"memory: server 0 needs {_bytes(needed)} but has {_bytes(there)}; see --memory"
    answering, cores = given.cohort * (stages.answer + REQUESTS), os.cpu_count() or 1
    if answering > given.upload_seconds * cores:
        yield (
            f"time: {cores} cores need {_seconds(answering / cores)} to process {given.cohort:,} sessions, but a round "
            f"is open for {_seconds(given.upload_seconds)}; use more cores, fewer sessions or a longer --upload-seconds"
        )
    try:
        task.ring.check_budget(cohort=given.cohort, bound=max(1, given.bound))
    except OverflowBudgetError:
        yield (
            f"ring overflow: {given.cohort:,} sessions of up to {given.clip:g} with {given.fraction_bits} fraction "
            f"bits can reach 2^{given.ring_bits - 1}; lower --cohort, --clip or --fraction-bits, or use --ring-bits 64"
        )


def describe(found: Cost) -> dict[str, str]:
    """Return a plan for people, in familiar units."""
    reads, writes = found["bytes_down_per_device"], found["bytes_up_per_device"]
    return {
        "catalogue": f"{found['items']:,} items, at most {found['capacity']:,} per device",
        "layout": f"{found['layout']}; {found['slots']:,} slots",
        "loss bound": f"{found['loss_bound']:.1e}",
        "a device sends": f"{_bytes(writes)}, relayed {_bytes(found['bytes_up_relayed'])}; "
        f"the whole table would be {_bytes(found['bytes_up_whole_table'])}",
        "and receives": f"{_bytes(reads)}, relayed {_bytes(found['bytes_down_relayed'])}; "
        f"the whole table would be {_bytes(found['bytes_down_whole_table'])}",
        "bytes counted": found["bytes_are"],
        "sessions per second": f"{found['sessions_per_second']:,.0f} on one core of each server",
        "before a round": f"{_seconds(found['seconds_to_prepare'])} to tag the table",
        "while it is open": f"{_seconds(found['seconds_to_answer'])} of one core to answer a full round",
        "after the seal": f"{_seconds(found['seconds_from_seal_to_publish'])}: "
        f"{_seconds(found['seconds_to_add'])} to add the sessions on each server, one after the other, "
        f"{_seconds(2 * found['seconds_to_share'] + found['seconds_to_send_share'])} to store and send the shares, "
        f"{_seconds(found['seconds_to_step'])} for the optimiser's step, "
        f"{_seconds(found['seconds_to_send_model'] + found['seconds_to_publish'])} to send and publish the model",
        "the whole fleet": f"{found['rounds_until_everybody_took_part']:,} rounds until everyone has taken part, "
        f"{_seconds(found['kernel_seconds_until_everybody_took_part'])} of one core on each server",
        "memory": f"{_bytes(found['memory_bytes_server0'])} on server 0, "
        f"{_bytes(found['memory_bytes_server1'])} on server 1, at peak",
        "disk": f"{_bytes(found['disk_bytes'])}, with {_bytes(found['stored_bytes_per_round'])} per round kept; "
        f"{_bytes(found['stored_bytes_per_version'])} per version kept beyond the third",
        "between the servers": f"{_bytes(found['peer_bytes_per_round'])} per round, "
        f"relayed {_bytes(found['peer_bytes_per_round_relayed'])}",
        **(describe_cluster(found["cluster"]) if found["cluster"] is not None else {}),
        "kernel": found["kernel"],
        "verdict": "; ".join(f"cannot: {one}" for one in found["cannot"]) or "possible",
    }


def _bytes(count: float) -> str:
    for unit, size in (("TB", 1e12), ("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if count >= size:
            return f"{count / size:.3g} {unit}"
    return f"{count:.0f} bytes"


def _seconds(seconds: float) -> str:
    for unit, size in (("days", 86_400.0), ("h", 3600.0), ("min", 60.0), ("s", 1.0)):
        if seconds >= size * (1.5 if size > 1 else 1):
            return f"{seconds / size:.3g} {unit}"
    return f"{1e3 * seconds:.0f} ms" if seconds >= 0.01 else f"{1e3 * seconds:.2g} ms"
