"""The creation of a party from settings."""

import asyncio
import time
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
from secemb_party.room import Memory
from secemb_party.service import Party
from secemb_party.settings import Settings
from secemb_party.storage.copies import catalogue_path, open_catalogue
from secemb_party.storage.objects import FolderObjects
from secemb_party.storage.stores import open_models, open_stores
from secemb_shared.dpf import Backend, default_backend
from secemb_shared.dpf._native import Native
from secemb_shared.kernel import native_available
from secemb_shared.messages import TaskSpec

if TYPE_CHECKING:
    from secemb_party.traces import Tracing

_PATIENCE = 5.0  # seconds that a server waits for its predecessor to end


async def open_party(settings: Settings) -> Party:
    """Open the ledger and the stores of one server, and record its task and first model."""
    task = TaskSpec.decode(settings.task.file.read_bytes().strip())
    settings.data_dir.mkdir(parents=True, exist_ok=True, mode=0o700)
    catalogue = open_catalogue(task, catalogue_path(settings.task.file, settings.task.catalogue_file))
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
    parts = Parts(
        role=settings.role,
        task=task,
        ledger=ledger,
        models=open_models(settings, task, stores.objects),
        shares=stores.shares,
        objects=stores.objects,
        workers=workers,
        memory=memory,
        compute=open_compute(settings, task, workers, metrics),
        ticket_key=ticket_public_key(settings),
        scratch=settings.data_dir,
        catalogue=catalogue,
        metrics=metrics,
        keep_rounds=settings.rounds.keep_bodies_rounds,
        keep_versions=settings.storage.keep_versions,
        keep_seconds=settings.rounds.keep_rows_days * 86_400.0,
        keep_tasks=settings.rounds.keep_tasks,
        seat_seconds=settings.rounds.seat_seconds,
        reserve=settings.storage.min_free_bytes,
        tracing=_open_tracing(settings),
        allowed_origins=settings.devices.allowed_origins,
    )
    party = Party(parts)
    metrics.watch_space(party.space.free, party.space.reserve, lambda: ledger.full)
    try:
        await party.start()
    except BaseException:
        await close_party(party)
        raise
    return party


async def close_party(party: Party) -> None:
    """Wait for running work and close the ledger."""
    party.close_compute()
    party.workers.close()
    await party.ledger.close()
    if party.tracing is not None:
        await asyncio.to_thread(party.tracing.close)


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
