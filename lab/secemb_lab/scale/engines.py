"""The engine on Ray beside the engine of threads: sessions a second, the time of a share, and the same bytes.

Every figure is the fastest of several repetitions, because other programs on a machine only ever add time. What is
measured is one server's work between messages: keys in, answers out; updates in, and the share out.
"""

import asyncio
import hashlib
import os
import signal
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from importlib.util import find_spec
from time import perf_counter, process_time

import numpy as np

from secemb_lab.report.report_file import Goal
from secemb_lab.scale.cluster import LocalCluster, local_cluster
from secemb_lab.scale.section import Section
from secemb_party.compute import Compute, PreparedRound
from secemb_party.compute.ray.remote import RayCompute
from secemb_party.compute.threads import ThreadCompute, Workers
from secemb_party.evaluation import KeysMessage, SessionBodies
from secemb_sdk.round.session import DeviceSession
from secemb_shared.dpf import CHECK_KEY_BYTES
from secemb_shared.layout import plan
from secemb_shared.messages import RoundSpec
from secemb_shared.row_words import Rows
from secemb_tools.catalogues import WIDTH, PaperCatalogue, choose
from secemb_tools.errors import OperationError
from secemb_tools.output import note

PARTY = 1
BATCHES = 3  # of sessions, each as many as the engine takes at a time
_DISTINCT = 8  # devices whose messages are used repeatedly
_TURNS = 2
_READY_SECONDS = 400.0  # a node starts several processes, which takes long on a busy machine
SPEEDUP, LOSS = 1.5, 1.25  # two workers against one; one worker against one thread


@dataclass(frozen=True, slots=True, kw_only=True)
class Figures:
    """One engine with one catalogue."""

    catalogue: str
    engine: str
    workers: int
    sessions: int
    answer_ms: float  # for one session, as are the next two
    add_ms: float
    kernel_ms: float  # of processor time
    server_ms: float  # of processor time of the server's own process, beside the kernel
    sessions_per_second: float  # answered and added
    prepare_seconds: float
    share_seconds: float
    digest: str  # of all answers, messages to the other server, and the share


@dataclass(frozen=True, slots=True, repr=False)
class Load:
    """A round, its model, and what a server receives in it."""

    catalogue: str
    spec: RoundSpec
    rows: Rows
    sessions: Sequence[SessionBodies]

    @classmethod
    def of(cls, catalogue: PaperCatalogue) -> "Load":
        """Return a round in the layout that the planner picks, with the norm proof that tasks have by default."""
        shape = plan(items=catalogue.items, capacity=catalogue.capacity, row_width=WIDTH, ring_bits=32)
        spec = catalogue.round(shape.geometry)
        rows = np.random.default_rng(0).normal(size=(catalogue.items, WIDTH)).astype(np.float32)
        return cls(catalogue.name, spec, rows, [_session(spec, catalogue) for _ in range(_DISTINCT)])

    def repeated(self, count: int) -> list[SessionBodies]:
        """Return so many sessions."""
        return [self.sessions[number % _DISTINCT] for number in range(count)]


def _session(spec: RoundSpec, catalogue: PaperCatalogue) -> SessionBodies:
    items = np.linspace(0, catalogue.items - 1, catalogue.capacity).astype(np.int64)
    session = DeviceSession(spec, items)
    update = session.write(items, np.full((items.size, WIDTH), 2.0**-10), np.zeros(0))[PARTY]
    return SessionBodies(session.session_id, session.keys[PARTY], update)


def measure(*, quick: bool) -> Section:
    """Measure threads, and workers on Ray over as many nodes."""
    if find_spec("ray") is None:
        raise OperationError("the section engines needs Ray; install `secemb[ray]`")
    names, workers = (["ML100K"], [2]) if quick else (["ML25M", "Yelp"], [1, 2, 4])
    loads = [Load.of(one) for one in choose(names)]
    found = [figures for load in loads for figures in _threads(load, [1] if quick else [1, 2], quick=quick)]
    killed: list[bool] = []
    for count in workers:
        nodes = 1 if quick else count  # each takes many seconds to start
        with local_cluster(cpus=count // nodes, nodes=nodes) as cluster:
            own, killed_here = _ray(cluster, loads, count, quick=quick)
            found += own
            killed += killed_here
    found.sort(key=lambda one: (names.index(one.catalogue), one.engine == "ray", one.workers))
    return Section(
        name="engines",
        title="The engine on Ray beside threads",
        columns=[
            "catalogue",
            "engine",
            "answer ms",
            "add ms",
            "kernel ms",
            "server ms",
            "sessions/s",
            "prepare s",
            "share s",
        ],
        rows=[_cells(one) for one in found],
        goals=[*_goals(found, quick=quick), *_survival(killed)],
        figures=[asdict(one) for one in found],
        remarks=[
            "All Ray workers and the server share this machine's cores"
            + ("." if quick else "; each worker is on a node of its own."),
            "`kernel ms` and `server ms` are processor time of a session; another process passes messages on to Ray.",
            "After the seal, a server adds what has not been added yet and makes the share: `share s` is the latter.",
        ],
    )


def _cells(one: Figures) -> list[str]:
    engine = f"{one.workers} thread{'s' * (one.workers > 1)}" if one.engine == "threads" else f"Ray, {one.workers}"
    times = (one.answer_ms, one.add_ms, one.kernel_ms, one.server_ms, one.sessions_per_second)
    return [
        one.catalogue,
        engine,
        *(f"{time:.2f}" for time in times),
        f"{one.prepare_seconds:.2f}",
        f"{one.share_seconds:.3f}",
    ]


def _goals(found: Sequence[Figures], *, quick: bool) -> Iterator[Goal]:
    by = {(one.catalogue, one.engine, one.workers): one for one in found}
    for catalogue in dict.fromkeys(one.catalogue for one in found):
        base = by[catalogue, "threads", 1]
        same = [one.digest == base.digest for one in found if one.catalogue == catalogue]
        yield Goal.at_least(f"{catalogue}: share of engines with the same bytes", sum(same) / len(same), 1)
        if not quick:
            rates = {count: by[catalogue, "ray", count].sessions_per_second for count in (1, 2)}
            yield Goal.at_least(f"{catalogue}: two workers against one", rates[2] / rates[1], SPEEDUP)
    if not quick:
        loss = by["Yelp", "threads", 1].sessions_per_second / by["Yelp", "ray", 1].sessions_per_second
        yield Goal.at_most("Yelp: time of one worker against one thread", loss, LOSS)


def _survival(killed: Sequence[bool]) -> Iterator[Goal]:
    yield Goal.at_least("share of clusters that went on with the same bytes after a kill", sum(killed) / len(killed), 1)


def _threads(load: Load, counts: Sequence[int], *, quick: bool) -> Iterator[Figures]:
    for count in counts:
        workers, spent = Workers(threads=count), Spent()
        engine = ThreadCompute(PARTY, workers, measure=spent.measure)
        try:
            yield _measured(load, engine, "threads", count, spent, quick=quick)
        finally:
            workers.close()


class Spent:
    """The processor time in the kernel."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def __call__(self, _operation: str, seconds: float) -> None:
        """Count what workers spent."""
        self.seconds += seconds

    @contextmanager
    def measure(self, operation: str) -> Iterator[None]:
        """Count what a thread spends."""
        from time import thread_time

        start = thread_time()
        yield
        if operation in {"answer", "accumulate"}:
            self.seconds += thread_time() - start


def _ray(cluster: LocalCluster, loads: Sequence[Load], count: int, *, quick: bool) -> tuple[list[Figures], list[bool]]:
    threads, spent = Workers(threads=2), Spent()
    engine = RayCompute(PARTY, threads, cluster.options(count), spent=spent)
    try:
        if not engine.at_ray.connected(_READY_SECONDS):
            raise OperationError(f"Ray did not start: {engine.fault()}")
        found = [_measured(load, engine, "ray", count, spent, quick=quick) for load in loads]
        return found, [asyncio.run(_survives(engine, loads[0], count))]
    finally:
        engine.close()
        threads.close()


def _measured(load: Load, engine: Compute, name: str, count: int, spent: Spent, *, quick: bool) -> Figures:
    turns = [asyncio.run(_turn(load, engine, spent)) for _ in range(1 if quick else _TURNS)]
    answer, add, share, prepare, kernel, own = (min(one[at] for one in turns) for at in range(6))
    sessions = BATCHES * engine.batch
    note(f"{load.catalogue}, {name}, {count}: {sessions / (answer + add):.1f} sessions/s, share {share:.3f} s")
    return Figures(
        catalogue=load.catalogue,
        engine=name,
        workers=count,
        sessions=sessions,
        answer_ms=answer / sessions * 1e3,
        add_ms=add / sessions * 1e3,
        kernel_ms=kernel / sessions * 1e3,
        server_ms=max(0.0, own - (kernel if name == "threads" else 0.0)) / sessions * 1e3,
        sessions_per_second=sessions / (answer + add),
        prepare_seconds=prepare,
        share_seconds=share,
        digest=asyncio.run(_digest(load, engine)),
    )


async def _turn(load: Load, engine: Compute, spent: Spent) -> tuple[float, ...]:
    """Return the seconds to answer, to add, to share and to prepare, and processor time: kernel, own process."""
    sessions, times = load.repeated(BATCHES * engine.batch), [perf_counter()]
    prepared = await engine.prepare(load.spec, load.rows, bytes(CHECK_KEY_BYTES))
    times.append(perf_counter())
    before, own = spent.seconds, process_time()
    batches = [sessions[at : at + engine.batch] for at in range(0, len(sessions), engine.batch)]
    await asyncio.gather(*(prepared.accept(_keys(some)) for some in batches))
    times.append(perf_counter())
    total = prepared.sum()
    for some in batches:
        await total.add(some)
    times.append(perf_counter())
    own = process_time() - own
    await total.share()
    times.append(perf_counter())
    prepare, answer, add, share = np.diff(times).tolist()
    return answer, add, share, prepare, spent.seconds - before, own


async def _digest(load: Load, engine: Compute) -> str:
    """Return a digest of everything that an engine says about some sessions."""
    return await _said(await engine.prepare(load.spec, load.rows, bytes(CHECK_KEY_BYTES)), load.sessions)


async def _said(prepared: PreparedRound, sessions: Sequence[SessionBodies]) -> str:
    accepted, total = await prepared.accept(_keys(sessions)), prepared.sum()
    told = await total.add(sessions)
    await total.remove(sessions[:1])
    said = hashlib.sha256()
    for one in accepted:
        said.update(one.answer + one.body_digest + one.public_digest)
    for message in (*told, await total.share()):
        said.update(message)
    return said.hexdigest()


async def _survives(engine: RayCompute, load: Load, count: int) -> bool:
    """Kill a worker in the middle of a round; return whether the engine then says the same as before."""
    prepared = await engine.prepare(load.spec, load.rows, bytes(CHECK_KEY_BYTES))
    before = await _said(prepared, load.sessions)
    processes = engine.at_ray.link().each("process", dict.fromkeys(range(count), ()))
    os.kill(processes[-1], signal.SIGKILL)
    return await _said(prepared, load.sessions) == before


def _keys(sessions: Sequence[SessionBodies]) -> list[KeysMessage]:
    return [KeysMessage(one.session_id, one.keys) for one in sessions]
