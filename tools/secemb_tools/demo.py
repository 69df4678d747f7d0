"""One complete round in one process, with a report: what was read, what was added, what each server saw."""

from dataclasses import dataclass
from time import perf_counter

import numpy as np
import numpy.typing as npt
from rich.console import Console
from rich.progress import track
from rich.table import Table

from secemb_party.evaluation import Share
from secemb_party.round import PartyRound, agree
from secemb_sdk.flow import DeviceSession, Messages
from secemb_shared.dpf import RingArray, default_backend
from secemb_shared.errors import RowTagError
from secemb_shared.layout import plan
from secemb_shared.messages import RoundSpec, Sizes, TaskSpec
from secemb_shared.messages.canonical import digest
from secemb_shared.messages.envelope import ENVELOPE_BYTES

WIDTH, DENSE = 65, 128  # 64 numbers and a bias a row, and a small dense part
LARGEST_TASTE = 300  # m' of the paper for a catalogue of this size


@dataclass(slots=True)
class Outcome:
    """What the round showed."""

    rows_read: int = 0
    rows_exact: bool = True
    truncated: int = 0
    device_seconds: float = 0.0
    server_seconds: float = 0.0
    sum_exact: bool = False
    fault_noticed: bool = False

    @property
    def good(self) -> bool:
        """Tell whether everything that must hold did."""
        return self.rows_exact and self.sum_exact and self.fault_noticed


def run(*, devices: int, items: int, seed: int) -> int:
    """Run the round, print the report and return the exit code."""
    console, rng = Console(), np.random.default_rng(seed)
    round_ = _round(items, devices)
    table = rng.normal(0.0, 0.1, (items, WIDTH)).astype(np.float32)
    servers = [PartyRound(round_, party, table) for party in (0, 1)]
    tastes = [_taste(rng, items, round_.task.capacity) for _ in range(devices)]
    console.print(f"[bold]One private round[/bold]: {devices} devices, {items:,} items ({default_backend().name})\n")
    outcome, expected = _devices(console, round_, servers, table, tastes, rng)
    outcome.fault_noticed = _plant_a_fault(round_, servers, tastes[0])
    _sum(outcome, servers, expected)
    _report(console, round_.task, outcome, devices, servers)
    return 0 if outcome.good else 1


def _round(items: int, devices: int) -> RoundSpec:
    capacity = min(LARGEST_TASTE, items)
    geometry = plan(items=items, capacity=capacity, row_width=WIDTH).geometry
    task = TaskSpec(
        name="demo",
        items=items,
        row_width=WIDTH,
        dense_size=DENSE,
        capacity=capacity,
        tables=geometry.tables,
        bins=geometry.bins,
        ring_bits=32,
        fraction_bits=16,
        bound=2**20,
        cohort=max(devices, 2),
        min_cohort=2,
    )
    return RoundSpec(task=task, number=1, model_version=1, model_digest=digest(b"demo"))


def _taste(rng: np.random.Generator, items: int, capacity: int) -> npt.NDArray[np.int64]:
    """Return the items of one made-up person: a few to many, popular ones more often."""
    popularity = 1.0 / np.arange(1, items + 1) ** 0.7
    count = min(items, int(rng.integers(5, capacity + capacity // 10)))
    return rng.choice(items, count, replace=False, p=popularity / popularity.sum()).astype(np.int64)


def _devices(
    console: Console,
    round_: RoundSpec,
    servers: list[PartyRound],
    table: npt.NDArray[np.float32],
    tastes: list[npt.NDArray[np.int64]],
    rng: np.random.Generator,
) -> tuple[Outcome, Share]:
    """Take every device through the round; return also the sum that no server could compute alone."""
    task, outcome = round_.task, Outcome()
    rows = np.zeros((task.items, WIDTH), dtype=task.ring.dtype)
    dense = np.zeros(DENSE, dtype=task.ring.dtype)
    for taste in track(tastes, "devices read, train and add", console=console, transient=True):
        start = perf_counter()
        session = DeviceSession(round_, taste)
        asked = perf_counter()
        answers = _ask(servers, session.session_id, session.keys)
        answered = perf_counter()
        ids, read = session.read(answers)
        update, dense_update = rng.normal(0.0, 0.5, read.shape), rng.normal(0.0, 0.5, DENSE)
        messages = session.write(ids, update, dense_update)
        outcome.device_seconds += asked - start + perf_counter() - answered
        outcome.server_seconds += (answered - asked) / 2
        for server, message in zip(servers, messages, strict=True):
            server.update(session.session_id, message)
        rows[ids] += task.ring.encode(update)
        dense += task.ring.encode(dense_update)
        outcome.rows_read += ids.size
        outcome.truncated += session.truncated
        outcome.rows_exact &= bool(np.array_equal(read, table[ids]))
    return outcome, Share(rows, dense)


def _ask(servers: list[PartyRound], session_id: bytes, keys: Messages) -> Messages:
    return servers[0].keys(session_id, keys[0]), servers[1].keys(session_id, keys[1])


def _sum(outcome: Outcome, servers: list[PartyRound], expected: Share) -> None:
    """Open the sum as the servers do: the same sorted list of sessions, one share from each."""
    sessions = agree(servers[0], servers[1])
    start = perf_counter()
    shares = [server.share(sessions) for server in servers]
    outcome.server_seconds += (perf_counter() - start) / 2
    rows: RingArray = shares[0].rows + shares[1].rows
    dense: RingArray = shares[0].dense + shares[1].dense
    outcome.sum_exact = np.array_equal(rows, expected.rows) and np.array_equal(dense, expected.dense)


def _plant_a_fault(round_: RoundSpec, servers: list[PartyRound], taste: npt.NDArray[np.int64]) -> bool:
    """Flip one bit of every row in one server's answer and see whether the device notices."""
    session = DeviceSession(round_, taste)
    answers = _ask(servers, session.session_id, session.keys)
    altered = np.frombuffer(answers[1], dtype=np.uint8).copy()
    altered[ENVELOPE_BYTES :: 4 * (WIDTH + 1)] ^= 1
    try:
        session.read((answers[0], altered.tobytes()))
    except RowTagError:
        return True
    return False


def _report(console: Console, task: TaskSpec, outcome: Outcome, devices: int, servers: list[PartyRound]) -> None:
    sizes, geometry = Sizes.of(task), task.geometry
    whole = task.items * WIDTH * 4 / 1e6
    facts = Table(show_header=False, box=None, padding=(0, 2))
    for row in (
        ("rows read privately", f"{outcome.rows_read:,}", _verdict(outcome.rows_exact, "bit-exact float32")),
        ("sum over all devices", f"{task.items:,} × {WIDTH}", _verdict(outcome.sum_exact, "equals the plain sum")),
        ("one altered bit a row", "planted", _verdict(outcome.fault_noticed, "noticed by the row tag")),
        ("items left out", f"{outcome.truncated:,}", f"beyond {task.capacity} in one device"),
        ("a device sends", f"{sizes.upload / 1e6:.3f} MB", f"instead of {2 * whole:.2f}, shares of everything"),
        ("a device receives", f"{sizes.download / 1e6:.3f} MB", f"instead of {whole:.2f}, the whole table"),
        ("a device computes", f"{1e3 * outcome.device_seconds / devices:.1f} ms", "placing, sharing, checking"),
        ("a server computes", f"{1e3 * outcome.server_seconds / devices:.1f} ms", "for each device"),
    ):
        facts.add_row(*row)
    console.print(facts)
    console.print(
        f"\nOf each device one server saw {sizes.keys:,} bytes of keys for {geometry.slots} slots "
        f"({geometry.tables} tables of {geometry.bins} bins) and {sizes.update[1]:,} bytes of update: the same lengths "
        f"from all {len(servers[0].complete())} sessions, and random bits to anyone without the other server's half. "
        "Together they learned the sum."
    )
    console.print("[bold green]All as it must be.[/bold green]" if outcome.good else "[bold red]FAILED[/bold red]")


def _verdict(good: bool, text: str) -> str:
    return f"[green]✓[/green] {text}" if good else f"[red]✗ not {text}[/red]"
