"""Recovery of a data directory: the model from the other server, and a reset of the optimiser."""

import time
from contextlib import AsyncExitStack
from pathlib import Path

import httpx
from typing_extensions import TypedDict

from secemb_party.errors import ModelError
from secemb_party.inventory import MODEL, OPTIMISER, Fault, find_faults
from secemb_party.ledger import Ledger, ModelVersion
from secemb_party.settings import Settings
from secemb_party.storage import Model, ModelStore, Shape
from secemb_party.storage.stores import open_models, open_stores
from secemb_sdk.trust import check_address, make_context
from secemb_server0.app import peer_client
from secemb_server0.reconstruct import fresh_state
from secemb_shared.messages import TaskSpec
from secemb_tools.errors import OperationError, UnreachableError
from secemb_tools.operate.task_files import read_task

_SECONDS = httpx.Timeout(60.0, connect=10.0)


class FetchedVersion(TypedDict):
    """A version that the ledger needs; `fetched` unless its file was already correct."""

    version: int
    digest: str
    fetched: bool


class ResetOptimiser(TypedDict):
    """The version from which the optimiser restarts, and why."""

    version: int
    reason: str


async def data_faults(settings: Settings, task: TaskSpec, ledger: Ledger) -> list[Fault]:
    """Return the mismatches between the data directory and the ledger."""
    stores = open_stores(settings)
    models = open_models(settings, task, stores.objects)
    return await find_faults(task, settings.role, ledger, models, stores.shares)


async def fetch_models(settings: Settings, source: str | None, ca: Path | None) -> list[FetchedVersion]:
    """Fetch the versions that the ledger needs and this server lacks from the other one, and verify digests."""
    task = read_task(settings.task.file)
    store = open_models(settings, task)
    wanted = await _needed(settings, task)
    done: list[FetchedVersion] = []
    async with AsyncExitStack() as stack:
        client = await stack.enter_async_context(_client(settings, source, ca))
        for one in wanted:
            fits = _fits(store, one)
            if not fits:
                store.replace(await _fetch(client, task, one))
            done.append({"version": one.version, "digest": one.digest.hex(), "fetched": not fits})
    return done


async def reset_optimiser(settings: Settings) -> ResetOptimiser:
    """Reset the optimiser at the newest version, if its state does not match; the ledger records this."""
    if settings.role != 0:
        raise OperationError("only server 0 has the optimiser; use its settings file")
    task = read_task(settings.task.file)
    async with await Ledger.open(settings.ledger_url(), migrate=False) as ledger:
        faults = {fault.check: fault.text for fault in await data_faults(settings, task, ledger)}
        if MODEL in faults:
            raise OperationError(f"{faults[MODEL]}; run secemb model fetch first")
        if OPTIMISER not in faults:
            raise OperationError("the optimiser's state matches the model; there is nothing to reset")
        newest = (await ledger.versions(task.task_id))[0].version
        open_models(settings, task).save_state(fresh_state(task, newest))
        reset: ResetOptimiser = {"version": newest, "reason": faults[OPTIMISER]}
        await ledger.append_event("optimiser", dict(reset), time.time(), task=task.task_id)
        return reset


async def _needed(settings: Settings, task: TaskSpec) -> list[ModelVersion]:
    """Return the published version, and the newest one if different."""
    async with await Ledger.open(settings.ledger_url(), migrate=False) as ledger:
        known = await ledger.versions(task.task_id)
        published = await ledger.published_version(task.task_id)
    if published is None:
        raise OperationError("no version is published yet; start the server first")
    return [published] if known[0].version == published.version else [published, known[0]]


def _fits(store: ModelStore, wanted: ModelVersion) -> bool:
    try:
        return store.load(wanted.version).digest == wanted.digest
    except ModelError:
        return False


def _client(settings: Settings, source: str | None, ca: Path | None) -> httpx.AsyncClient:
    if source is not None:
        url = check_address(source)
        return httpx.AsyncClient(base_url=url, verify=make_context(url, ca=ca), timeout=_SECONDS, trust_env=False)
    if settings.role == 1:
        raise OperationError(
            "server 1 does not know the address of server 0; give the one that devices use with --from"
        )
    return peer_client(settings)


async def _fetch(client: httpx.AsyncClient, task: TaskSpec, wanted: ModelVersion) -> Model:
    """Return a version from the other server's endpoint for devices, if it matches this server's ledger."""
    shape, prefix = Shape.of(task), f"/v1/tasks/{task.task_id.hex()}"
    rows = await _read(client, f"{prefix}/table/{wanted.version}?format=float32", 4 * shape.items * shape.width)
    dense = await _read(client, f"{prefix}/dense/{wanted.version}", 4 * shape.dense) if shape.dense else b""
    model = Model.decode(task.task_id, wanted.version, shape, rows + dense)
    if model.digest != wanted.digest:
        raise OperationError(
            f"version {wanted.version} on the other server does not match this ledger; nothing was stored."
            " Compare secemb model list on both servers, and restore a backup"
        )
    return model


async def _read(client: httpx.AsyncClient, path: str, size: int) -> bytes:
    found = bytearray()
    try:
        async with client.stream("GET", path) as answer:
            if answer.status_code == 404:
                raise OperationError("the other server does not have this version, or serves another task")
            answer.raise_for_status()
            async for piece in answer.aiter_bytes():
                found += piece
                if len(found) > size:
                    break
    except (httpx.HTTPError, OSError) as error:
        raise UnreachableError(
            f"could not fetch the model from the other server ({type(error).__name__}); run secemb check, or "
            "check --from"
        ) from None
    if len(found) != size:
        raise OperationError(
            f"the other server sent something other than a model of this task, which has {size:,} bytes"
        )
    return bytes(found)
