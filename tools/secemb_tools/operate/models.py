"""The versions of the model that a server holds: list, describe, export, and import the first one."""

from pathlib import Path

import numpy as np
from typing_extensions import TypedDict

from secemb_party.errors import SchemaMissingError
from secemb_party.ledger import Ledger, ModelVersion
from secemb_party.settings import Settings
from secemb_party.storage import ModelStore, Shape
from secemb_party.storage.stores import open_models
from secemb_party.storage.weights import export_weights, import_weights
from secemb_shared.messages import TaskSpec
from secemb_tools.errors import OperationError
from secemb_tools.operate.backup import refuse_to_overwrite
from secemb_tools.operate.task_files import read_task


class VersionRow(TypedDict):
    """One version of the model."""

    version: int
    digest: str
    published: bool
    file: bool  # whether its weights are on this server


class VersionSummary(VersionRow):
    """The size of a version and the norms of its vectors."""

    items: int
    row_width: int
    dense_size: int
    bytes: int
    mean_row_norm: float
    largest_row_norm: float
    mean_bias: float
    dense_norm: float


class ExportedVersion(TypedDict):
    """A version written to a file."""

    version: int
    digest: str
    file: str


class ImportedVersion(TypedDict):
    """A version read from a file."""

    version: int
    digest: str


async def list_versions(settings: Settings) -> list[VersionRow]:
    """Return the versions in the ledger or the data directory."""
    task = read_task(settings.task.file)
    store = open_models(settings, task)
    known = {one.version: one for one in await _recorded(settings, task)}
    return [_row(version, known.get(version), store) for version in sorted({*known, *store.versions()})]


async def export(settings: Settings, version: int | None, path: Path, *, split_bias: bool) -> ExportedVersion:
    """Write a published version to a file for serving; by default the latest."""
    task = read_task(settings.task.file)
    store = open_models(settings, task)
    published = {one.version: one for one in await _recorded(settings, task) if one.published_at is not None}
    if not published:
        raise OperationError("no version is published yet; start both servers first")
    chosen = max(published) if version is None else version
    if chosen not in published:
        raise OperationError(f"version {chosen} is not published; see secemb model list")
    if store.load(chosen).digest != published[chosen].digest:
        raise OperationError(f"the file of version {chosen} differs from what was published; run secemb model fetch")
    _write(store, chosen, path, split_bias)
    return {"version": chosen, "digest": published[chosen].digest.hex(), "file": str(path)}


async def describe(settings: Settings, version: int | None) -> VersionSummary:
    """Return the size of a version and the norms of its vectors; by default of the latest."""
    task = read_task(settings.task.file)
    known = {one.version: one for one in await _recorded(settings, task)}
    chosen = version if version is not None else max((one for one in known if known[one].published_at), default=None)
    if chosen is None:
        raise OperationError("no version is published yet; start both servers first")
    store = open_models(settings, task)
    if chosen not in store.versions():
        raise OperationError(f"version {chosen} is not stored here; see secemb model list")
    model = store.load(chosen)
    norms = np.linalg.norm(model.rows.astype(np.float64), axis=1)
    return {
        **_row(chosen, known.get(chosen), store),
        "items": len(model.rows),
        "row_width": model.rows.shape[1],
        "dense_size": model.dense.size,
        "bytes": 4 * (model.rows.size + model.dense.size),
        "mean_row_norm": float(norms.mean()),
        "largest_row_norm": float(norms.max()),
        "mean_bias": float(model.rows[:, -1].mean()),
        "dense_norm": float(np.linalg.norm(model.dense.astype(np.float64))),
    }


async def import_first(settings: Settings, path: Path) -> ImportedVersion:
    """Use the weights in a file as version 0, before the server's first start."""
    task = read_task(settings.task.file)
    if await _recorded(settings, task):
        raise OperationError(
            "this task has already started; import weights before the first start, or create a new task"
        )
    model = import_weights(open_models(settings, task), task.task_id, Shape.of(task), path)
    return {"version": model.version, "digest": model.digest.hex()}


def _write(store: ModelStore, version: int, path: Path, split_bias: bool) -> None:
    refuse_to_overwrite(path)
    export_weights(store.load(version), path, split_bias=split_bias)


async def _recorded(settings: Settings, task: TaskSpec) -> list[ModelVersion]:
    try:
        async with await Ledger.open(settings.ledger_url(), migrate=False) as ledger:
            return await ledger.versions(task.task_id)
    except SchemaMissingError:
        return []  # never started


def _row(version: int, known: ModelVersion | None, store: ModelStore) -> VersionRow:
    held = version in store.versions()
    return {
        "version": version,
        "digest": known.digest.hex() if known is not None else store.load(version).digest.hex(),
        "published": known is not None and known.published_at is not None,
        "file": held,
    }
