"""What the servers of a large task need past one machine: cores, memory, network and disk, from the plan's figures.

Each server is a cluster of its own. Its workers each own a range of the slots and hold the rows and the sums of their
bins; one process, the conductor, adds the shares and takes the optimiser's step.
"""

import math

from typing_extensions import TypedDict

from secemb_shared.messages import TaskSpec
from secemb_tools.plan import costs
from secemb_tools.plan.costs import REQUESTS, Stages

_DAY = 86_400.0
_BUSY = 0.5  # fraction of the time that a core should be busy on average, because devices do not come evenly
_SHORTEST = 60.0  # seconds of a round in which devices can still come
_GRID = 1 << 30  # bytes of memory of a worker beside its rows and sums: the interpreter, batches of messages


class Cluster(TypedDict):
    """The needs of each server for this number of devices a day; `server 0` alone has the optimiser."""

    devices_per_day: int
    rounds_per_day: int
    seconds_per_round: float
    cores_to_answer: float  # keys
    cores_to_add: float  # updates
    cores_for_requests: float
    cores_between_rounds: float  # preparation, shares, the step and publication
    workers: int  # with one core each
    memory_bytes_per_worker: int
    memory_bytes_conductor: int
    peer_bytes_per_day: int
    peer_megabits_per_second: float
    device_bytes_in_per_day: int  # at both servers together
    device_bytes_out_per_day: int
    disk_bytes: int
    disk_bytes_written_per_day: int
    seconds_after_the_seal: float
    keeps_up: bool


def cluster(task: TaskSpec, stages: Stages, *, devices: int, after_the_seal: float, up: int, down: int) -> Cluster:
    """Return what so many devices a day need; the seconds of the stages are those of one core."""
    rounds = math.ceil(devices / task.cohort)
    answering, adding = (devices * one / _DAY for one in (stages.answer, stages.add))
    between = rounds * (stages.prepare + stages.share + stages.step + stages.publish) / _DAY
    requests = devices * REQUESTS / _DAY
    workers = max(1, math.ceil((answering + adding) / _BUSY))
    table = costs.tagged_bytes(task) + costs.sum_bytes(task)
    # Every item is in one bin of each table, so all workers together hold each row as often as there are tables.
    own = table * task.tables // workers if workers > 1 else table
    seconds = _DAY / rounds
    return {
        "devices_per_day": devices,
        "rounds_per_day": rounds,
        "seconds_per_round": seconds,
        "cores_to_answer": answering,
        "cores_to_add": adding,
        "cores_for_requests": requests,
        "cores_between_rounds": between,
        "workers": workers,
        "memory_bytes_per_worker": _GRID + own,
        "memory_bytes_conductor": costs.memory_of_server0(task) if workers == 1 else _GRID + costs.sum_bytes(task),
        "peer_bytes_per_day": rounds * costs.peer_bytes(task),
        "peer_megabits_per_second": rounds * costs.peer_bytes(task) * 8e-6 / _DAY,
        "device_bytes_in_per_day": devices * up,
        "device_bytes_out_per_day": devices * down,
        "disk_bytes": costs.disk_of_server0(task),
        "disk_bytes_written_per_day": rounds * costs.written_per_round(task),
        "seconds_after_the_seal": after_the_seal / workers,
        "keeps_up": seconds - _SHORTEST > after_the_seal / workers,
    }


def describe_cluster(found: Cluster) -> dict[str, str]:
    """Return the needs for people: one line for each."""
    cores = {name: found[f"cores_{name}"] for name in ("to_answer", "to_add", "for_requests", "between_rounds")}  # type: ignore[literal-required]
    return {
        "devices a day": f"{found['devices_per_day']:,} in {found['rounds_per_day']:,} rounds of"
        f" {found['seconds_per_round']:,.0f} s",
        "busy cores of each server": f"{sum(cores.values()):.2f} on average: {cores['to_answer']:.2f} answer keys,"
        f" {cores['to_add']:.2f} add updates, {cores['for_requests']:.2f} for requests,"
        f" {cores['between_rounds']:.2f} between rounds",
        "workers of each server": f"{found['workers']} with one core each, half of it busy, and"
        f" {found['memory_bytes_per_worker'] / 1e9:.1f} GB each",
        "conductor": f"{found['memory_bytes_conductor'] / 1e9:.1f} GB",
        "servers to each other": f"{found['peer_bytes_per_day'] / 1e9:,.0f} GB a day,"
        f" {found['peer_megabits_per_second']:,.0f} Mbit/s on average",
        "devices to both servers": f"{found['device_bytes_in_per_day'] / 1e9:,.0f} GB a day up,"
        f" {found['device_bytes_out_per_day'] / 1e9:,.0f} GB down",
        "disk of server 0": f"{found['disk_bytes'] / 1e9:,.0f} GB,"
        f" {found['disk_bytes_written_per_day'] / 1e12:.2f} TB written a day",
        "after each seal": f"{found['seconds_after_the_seal']:,.0f} s if the workers share it evenly; the next round"
        f" {'opens in time' if found['keeps_up'] else 'opens too late: use larger cohorts'}",
    }
