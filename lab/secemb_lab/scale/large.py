"""Rounds of large catalogues: two real servers and their devices on one machine, over HTTP.

Times are those of a machine whose cores the two servers and the devices share, and of its disk.
"""

import asyncio
import resource
import tempfile
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

from secemb_lab.loadtest.fleet import run_fleet
from secemb_lab.loadtest.loadtest import task_for
from secemb_lab.report.report_file import Goal
from secemb_lab.scale.section import Section
from secemb_tools.catalogues import WIDTH, PaperCatalogue
from secemb_tools.local import Pair
from secemb_tools.output import note
from secemb_tools.plan import PlanInput, cost

DEVICES, CAPACITY = 20, 500
OPTIMISER = "lazy-adam"
MILLION, AMAZON = 1_000_000, 9_267_503
_ROUNDS = {MILLION: 3, AMAZON: 1}
_PATIENCE = 1800.0  # seconds for a request; the first one of a round waits for the table
GIB = 2**30
MEMORY, STAGE_SECONDS, LAG, BYTES, KERNEL_TIMES = 8.0, 300.0, 0.2, 0.02, 3.0
_STAGES = {
    "sealing": "compare the sessions",
    "sealed": "add them, store the share",
    "shared": "the other's share, the step",
    "reconstructed": "send and publish",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Figures:
    """One catalogue."""

    items: int
    devices: int
    finished: int
    stages: dict[str, float]  # seconds after the last upload
    kernel: dict[str, float]  # seconds of server 0's kernel in a round, by operation
    memory: list[int]  # peak bytes of server 0, of server 1 and of all devices together
    planned_memory: list[int]  # of the servers
    lag: float  # seconds: the longest of both event loops
    bytes_up: int
    bytes_down: int
    planned_up: int
    planned_down: int

    @property
    def kernel_times(self) -> float:
        """Return the time from seal to publish as a multiple of the time that both servers add the sessions in."""
        return sum(self.stages.values()) / (2 * (self.kernel.get("accumulate", 0.0) + self.kernel.get("noise", 0.0)))


def measure(*, quick: bool) -> Section:
    """Measure a million items, and the paper's largest catalogue."""
    found = [_measure(items) for items in ([20_000] if quick else [MILLION, AMAZON])]
    return Section(
        name="large",
        title="Large catalogues",
        columns=["", *(f"{one.items:,} items" for one in found)],
        rows=list(_rows(found)),
        goals=[goal for one in found for goal in _goals(one, quick=quick)],
        figures=[_plain(one) for one in found],
        remarks=[
            f"{DEVICES} devices with {CAPACITY} items each, rows of {WIDTH} numbers, optimiser {OPTIMISER}. Memory is"
            " the peak that the kernel reports for a process (VmHWM), pages of mapped files included.",
            "From seal to publish, server 0 and then server 1 add the sessions, since fewer than a batch have come.",
        ],
    )


def _measure(items: int) -> Figures:
    catalogue = PaperCatalogue(f"{items:,} items", items, CAPACITY)
    rounds = _ROUNDS.get(items, 2)
    task = task_for(catalogue, cohort=DEVICES, optimiser=OPTIMISER, upload_seconds=int(_PATIENCE))
    with tempfile.TemporaryDirectory(prefix="secemb-large-") as folder:
        variables = {
            "SECEMB_STORAGE__KEEP_VERSIONS": "1",
            "SECEMB_ROUNDS__KEEP_BODIES_ROUNDS": "1",
            "SECEMB_ROUNDS__SEAT_SECONDS": "300",  # devices that share a busy machine take long to make their keys
        }
        pair = Pair(Path(folder), task, variables=variables, start_seconds=_PATIENCE)
        with pair.running():
            note(f"{items:,} items: both servers are ready")
            fleet = asyncio.run(run_fleet(pair, devices=DEVICES, rounds=rounds, patience=_PATIENCE))
            usages = [server.usage() for server in pair.servers]
            stages = pair.servers[0].stages()
    note(f"{items:,} items: {rounds} rounds published")
    planned = cost(
        PlanInput(
            items=items,
            capacity=CAPACITY,
            width=WIDTH,
            dense_size=0,
            cohort=DEVICES,
            fleet=DEVICES,
            placement_loss=1e-6,
            ring_bits=32,
            link=10_000,
            optimiser=OPTIMISER,
        ),
        seconds=0.2,
    )
    return Figures(
        items=items,
        devices=DEVICES * rounds,
        finished=fleet.finished,
        stages=stages,
        kernel={name: seconds / rounds for name, seconds in usages[0].kernel_seconds.items()},
        memory=[*(one.memory_bytes for one in usages), 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss],
        planned_memory=[planned["memory_bytes_server0"], planned["memory_bytes_server1"]],
        lag=max(one.largest_lag_seconds for one in usages),
        bytes_up=fleet.sent // max(fleet.finished, 1),
        bytes_down=fleet.received // max(fleet.finished, 1),
        planned_up=planned["bytes_up_per_device"],
        planned_down=planned["bytes_down_per_device"],
    )


def _plain(one: Figures) -> dict[str, float]:
    """Return the figures as plain numbers by name."""
    plain: dict[str, float] = {}
    for name, value in asdict(one).items():
        parts = value if isinstance(value, dict) else dict(enumerate(value)) if isinstance(value, list) else None
        plain |= {name: value} if parts is None else {f"{name}_{part}": number for part, number in parts.items()}
    return plain


def _rows(found: list[Figures]) -> Iterator[list[str]]:
    yield ["sessions finished", *(f"{one.finished} of {one.devices}" for one in found)]
    for name, told in (("prepare", "prepare the table"), ("answer", "answer the keys"), ("accumulate", "add updates")):
        yield [f"server 0's kernel: {told}, s", *(f"{one.kernel.get(name, 0.0):.2f}" for one in found)]
    for name, told in _STAGES.items():
        yield [f"after the seal: {told}, s", *(f"{one.stages[name]:.2f}" for one in found)]
    yield ["seal to publish, s", *(f"{sum(one.stages.values()):.2f}" for one in found)]
    yield ["the same in times of the kernel's on both servers", *(f"{one.kernel_times:.1f}" for one in found)]
    for at, who in enumerate(("server 0", "server 1", "all devices")):
        yield [f"peak memory of {who}, GB", *(f"{one.memory[at] / 1e9:.2f}" for one in found)]
    for role in (0, 1):
        yield [f"planned for server {role}, GB", *(f"{one.planned_memory[role] / 1e9:.2f}" for one in found)]
    yield ["longest event-loop lag, ms", *(f"{1e3 * one.lag:.0f}" for one in found)]
    yield ["a device sends, kB (plan)", *(f"{one.bytes_up / 1e3:.1f} ({one.planned_up / 1e3:.1f})" for one in found)]
    down = (f"{one.bytes_down / 1e3:.1f} ({one.planned_down / 1e3:.1f})" for one in found)
    yield ["and receives, kB (plan)", *down]


def _goals(one: Figures, *, quick: bool) -> Iterator[Goal]:
    name = f"{one.items:,} items"
    yield Goal.at_least(f"{name}: share of sessions finished", one.finished / one.devices, 1)
    for told, found, planned in (("up", one.bytes_up, one.planned_up), ("down", one.bytes_down, one.planned_down)):
        yield Goal.at_most(f"{name}: bytes {told} of a device, off the plan", abs(found / planned - 1), BYTES)
    if quick:
        return
    yield Goal.at_most(f"{name}: GiB of a server", max(one.memory[:2]) / GIB, MEMORY)
    off = max(abs(planned / found - 1) for planned, found in zip(one.planned_memory, one.memory, strict=False))
    yield Goal.at_most(f"{name}: memory of a server, off the plan", off, 0.25)
    yield Goal.at_most(f"{name}: seconds of the longest stage", max(one.stages.values()), STAGE_SECONDS)
    yield Goal.at_most(f"{name}: seconds of event-loop lag", one.lag, LAG)
    if one.items == MILLION:
        yield Goal.at_most(f"{name}: seal to publish, in times of the kernel's", one.kernel_times, KERNEL_TIMES)
