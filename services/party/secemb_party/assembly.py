"""The creation of a server's parts from settings."""

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.serialization import load_pem_private_key, load_pem_public_key

from secemb_party.certificates import watch_certificates
from secemb_party.compute import Compute
from secemb_party.compute.threads import ThreadCompute, Workers
from secemb_party.errors import SettingsError
from secemb_party.ledger import Ledger
from secemb_party.metrics import Metrics
from secemb_party.operators import Operators
from secemb_party.parts import Parts
from secemb_party.replicas import check_stores
from secemb_party.room import Memory, Space
from secemb_party.service import Party
from secemb_party.settings import Settings
from secemb_party.storage.copies import open_catalogue
from secemb_party.storage.objects import FolderObjects
from secemb_party.storage.stores import Stores, open_models, open_stores
from secemb_party.tenancy.host import Host, Hosted
from secemb_party.tenancy.places import TaskPlace, TaskPlaces
from secemb_shared.dpf import Backend, default_backend
from secemb_shared.dpf._native import Native
from secemb_shared.kernel import native_available
from secemb_shared.messages import TaskSpec

if TYPE_CHECKING:
    from secemb_party.traces import Tracing

_PATIENCE = 5.0  # seconds that a server waits for its predecessor to end


@dataclass(frozen=True, slots=True, kw_only=True)
class Ground:
    """What all tasks of one server share."""

    settings: Settings
    ledger: Ledger
    stores: Stores
    workers: Workers
    memory: Memory
    compute: Compute
    metrics: Metrics
    tracing: "Tracing | None"

    def parts(self, place: TaskPlace) -> Parts:
        """Return the components of the party of one task."""
        settings, task = self.settings, place.task
        return Parts(
            role=settings.role,
            task=task,
            ledger=self.ledger,
            models=open_models(settings, task, self.stores.objects),
            shares=self.stores.shares,
            objects=self.stores.objects,
            identity=server_identity(settings),
            store_of=lambda task: open_models(settings, task, self.stores.objects),
            workers=self.workers,
            memory=self.memory,
            compute=self.compute,
            ticket_key=ticket_public_key(settings),
            scratch=settings.data_dir,
            catalogue=open_catalogue(task, place.catalogue),
            metrics=self.metrics.of_task(task.task_id),
            keep_rounds=settings.rounds.keep_bodies_rounds,
            keep_versions=settings.storage.keep_versions,
            keep_seconds=settings.rounds.keep_rows_days * 86_400.0,
            keep_tasks=settings.rounds.keep_tasks,
            seat_seconds=settings.rounds.seat_seconds,
            reserve=settings.storage.min_free_bytes,
            tracing=self.tracing,
            allowed_origins=settings.devices.allowed_origins,
        )

    async def close(self) -> None:
        """Wait for running work and close the ledger."""
        self.compute.close()
        self.workers.close()
        await self.ledger.close()
        if self.tracing is not None:
            await asyncio.to_thread(self.tracing.close)


async def open_ground(settings: Settings, task: TaskSpec) -> Ground:
    """Open the ledger and create what all tasks of a server share; `task` is the one that the settings name."""
    settings.data_dir.mkdir(parents=True, exist_ok=True, mode=0o700)
    metrics, workers = Metrics(), Workers(threads=settings.work.threads)
    memory = Memory(settings.work.memory_bytes)
    metrics.watch_memory(lambda: memory.held, memory.most)
    watch_certificates(metrics, settings)
    stores = open_stores(settings)
    if stores.objects is not None:
        await asyncio.to_thread(stores.objects.check)
    ledger = await Ledger.open(
        settings.ledger_url(),
        migrate=settings.ledger.migrate,
        bodies=stores.bodies,
        measure=metrics.ledger,
        patience=_PATIENCE,
        shared=settings.ledger.shared,
    )
    try:
        if settings.ledger.shared:
            await check_stores(ledger, stores.objects or FolderObjects(settings.data_dir), time.time())
    except BaseException:
        await ledger.close()
        raise
    space = Space(settings.data_dir, reserve=settings.storage.min_free_bytes, ledger_full=lambda: ledger.full)
    metrics.watch_space(space.free, space.reserve, lambda: ledger.full)
    return Ground(
        settings=settings,
        ledger=ledger,
        stores=stores,
        workers=workers,
        memory=memory,
        compute=open_compute(settings, task, workers, metrics),
        metrics=metrics,
        tracing=_open_tracing(settings),
    )


Assembly = Callable[[Ground, Callable[[], Host]], Callable[[Party], Hosted]]


async def open_host(settings: Settings, assembly: Assembly) -> Host:
    """Open the ledger and all tasks of a server; `assembly` returns the function that makes the apps of a task."""
    files = task_places(settings)
    first = next(iter(files.all().values()))  # a task that cannot be read is reported before anything is opened
    ground = await open_ground(settings, first.task)

    def assemble(party: Party) -> Hosted:
        return make(party)

    host = Host(
        ground.ledger,
        files,
        make_parts=ground.parts,
        assemble=assemble,
        metrics=ground.metrics,
        clock=time.time,
        close=ground.close,
    )
    make = assembly(ground, lambda: host)
    try:
        await host.open()
    except BaseException:
        await ground.close()
        raise
    return host


def task_places(settings: Settings) -> TaskPlaces:
    """Return the files of a server's tasks."""
    return TaskPlaces(settings.data_dir, settings.task.file, settings.task.catalogue_file)


def find_operators(settings: Settings) -> Operators | None:
    """Return the operator tokens, or None if there is no operator's interface."""
    file = settings.operator.tokens_file
    return Operators(file.path) if file is not None else None


def ticket_private_key(settings: Settings) -> Ed25519PrivateKey:
    """Return the key with which server 0 signs tickets."""
    if settings.task.ticket_key_file is None:
        raise SettingsError("task.ticket_key_file: required on server 0; `secemb task create` generates it")
    try:
        key = load_pem_private_key(settings.task.ticket_key_file.text().encode(), password=None)
    except (ValueError, UnsupportedAlgorithm):
        raise SettingsError("task.ticket_key_file: not a private key; `secemb task create` generates one") from None
    if not isinstance(key, Ed25519PrivateKey):
        raise SettingsError("task.ticket_key_file: not an Ed25519 key; `secemb task create` generates one")
    return key


def server_identity(settings: Settings) -> Ed25519PrivateKey | None:
    """Return the key with which this server signs its task's successor, if it has one; on server 1, also relay keys."""
    file = settings.task.identity_file if settings.role == 0 else settings.relay.identity_file
    if file is None:
        return None
    name = "task.identity_file" if settings.role == 0 else "relay.identity_file"
    try:
        key = load_pem_private_key(file.content, password=None)
    except (ValueError, UnsupportedAlgorithm):
        key = None
    if not isinstance(key, Ed25519PrivateKey):
        raise SettingsError(f"{name}: not an Ed25519 private key; `secemb init` generates one")
    return key


def ticket_public_key(settings: Settings) -> Ed25519PublicKey:
    """Return the key for checking tickets."""
    if settings.role == 0:
        return ticket_private_key(settings).public_key()
    return _public_key(settings.task.ticket_public_file)


def _public_key(path: Path | None) -> Ed25519PublicKey:
    try:
        key = load_pem_public_key(path.read_bytes()) if path is not None else None
    except (ValueError, UnsupportedAlgorithm):
        key = None
    if not isinstance(key, Ed25519PublicKey):
        raise SettingsError("task.ticket_public_file: not an Ed25519 public key; copy the one that server 0 generated")
    return key


def _open_tracing(settings: Settings) -> "Tracing | None":
    if settings.tracing.endpoint is None:
        return None  # the libraries are not imported either
    try:
        from secemb_party.traces import Tracing
    except ModuleNotFoundError:
        raise SettingsError("tracing.endpoint: tracing needs extra packages; install `secemb[tracing]`") from None
    service = f"secemb-server{settings.role}"
    return Tracing(settings.tracing.endpoint, service=service, sample=settings.tracing.sample)


def open_compute(settings: Settings, task: TaskSpec, workers: Workers, metrics: Metrics) -> Compute:
    """Return the engine that the settings choose."""
    if settings.compute.engine == "threads":
        backend = _backend(settings.work.kernel_threads)
        return ThreadCompute(settings.role, workers, backend=backend, measure=metrics.kernel)
    if find_spec("ray") is None:  # only its own process imports it
        raise SettingsError(
            'compute.engine: "ray" needs extra packages; install `secemb[ray]`, or set compute.engine = "threads"'
        )
    from secemb_party.compute.ray.messages import Options
    from secemb_party.compute.ray.remote import RayCompute
    from secemb_party.compute.slots import worker_bytes

    reserved, needed = settings.compute.memory_bytes, worker_bytes(task, settings.compute.workers)
    if reserved is not None and reserved < needed:
        raise SettingsError(
            f"compute.memory_bytes: a worker of this task needs about {needed:,} bytes; set at least as many, or more"
            " workers"
        )
    options = Options(
        address=settings.compute.address, workers=settings.compute.workers, memory_bytes=settings.compute.memory_bytes
    )
    compute = RayCompute(
        settings.role,
        workers,
        options,
        measure=metrics.kernel,
        spent=metrics.kernel_spent,
        replaced=metrics.compute_replaced,
    )
    metrics.watch_compute(lambda: compute.fault() is None)
    return compute


def _backend(threads: int) -> Backend:
    return Native(threads=threads) if threads > 1 and native_available() else default_backend()
