"""Backups of one server: a consistent snapshot of its ledger and the files that the ledger names, in one tar file.

A backup contains no body of a session: nothing in it reveals what a device has read or written, not even together
with the backup of the other server. It contains no key, token or setting either; these are files that rarely change,
and `SEPARATE` names them. The ledger alone can also be exported, to move it from one database to another.
"""

import asyncio
import hashlib
import io
import json
import os
import re
import shutil
import tarfile
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO

from typing_extensions import TypedDict

from secemb_party.inventory import Named, read_named
from secemb_party.ledger import Ledger, RoundState
from secemb_party.ledger.schema import bodies
from secemb_party.settings import Settings
from secemb_party.storage import ShareFiles
from secemb_party.storage.files import make_folder, whole_file
from secemb_party.storage.model_files import state_name
from secemb_shared.messages import TaskSpec
from secemb_tools.errors import OperationError
from secemb_tools.operate.task_files import read_task

FORMAT = "secemb/1 backup"
SEPARATE = ("secemb.toml", "tls/", "secrets/", "task/")
_LEDGER, _MANIFEST = "ledger.jsonl", "manifest.json"
_NAME = re.compile(r"models/[0-9a-f]{64}/v\d{6,}(\.optimiser)?\.safetensors|shares/[0-9a-f]{64}\.[0-9a-f]{64}\.share")
_LARGEST_MANIFEST = 1 << 20
_PATIENCE = 60.0  # seconds to wait for a round that is being added or published
_PAUSE = 0.2


class Backup(TypedDict):
    """A backup, and the files that must be backed up separately."""

    file: str
    made_at: float  # seconds since 1970
    model_version: int | None
    files: int
    bytes: int
    not_included: str


@dataclass(frozen=True, slots=True)
class Origin:
    """The origin of a backup: the directory with models and shares, the role and the task."""

    data_dir: Path
    role: int
    task: TaskSpec = field(repr=False)

    @classmethod
    def of(cls, settings: Settings) -> "Origin":
        """Return the origin according to the settings."""
        return cls(settings.data_dir, settings.role, read_task(settings.task.file))


async def back_up(settings: Settings, path: Path) -> Backup:
    """Write a backup to a new file; the server may be running."""
    refuse_to_overwrite(path)
    _refuse_bucket(settings)
    async with await Ledger.open(settings.ledger_url(), migrate=False) as ledger:
        return await write_backup(ledger, Origin.of(settings), path)


async def restore(settings: Settings, path: Path) -> Backup:
    """Restore a backup to a server that has no ledger, models or shares yet."""
    _refuse_bucket(settings)
    async with await open_or_create(settings) as ledger:
        return await read_backup(ledger, Origin.of(settings), path)


def _refuse_bucket(settings: Settings) -> None:
    """Refuse a server whose models and shares are not files of this machine."""
    if settings.storage.url is not None:
        raise OperationError(
            "models and shares are in an object store; back up the bucket with the store's own tools and the ledger"
            " with `secemb ledger export` (see Backups in docs/operating.md)"
        )


async def write_backup(ledger: Ledger, origin: Origin, path: Path) -> Backup:
    """Write a backup; if a round is being added or published, wait until that is done."""
    end = time.monotonic() + _PATIENCE
    while True:
        with ExitStack() as stack:
            held = await _gather(stack, ledger, origin, path.parent)
            if held is not None:
                return await asyncio.to_thread(_write, path, origin, *held)
        if time.monotonic() > end:
            raise OperationError("a round ended while the backup was being made; try again in a minute")
        await asyncio.sleep(_PAUSE)


async def _gather(
    stack: ExitStack, ledger: Ledger, origin: Origin, scratch: Path
) -> tuple[Named, dict[str, BinaryIO]] | None:
    """Return the open files of a consistent snapshot; None if the ledger changed meanwhile."""
    shares = ShareFiles(origin.data_dir)
    named = await read_named(ledger, origin.task.task_id, shares)
    if named.running is not None and named.running.state is RoundState.SEALED:
        return None  # its bodies are still needed, and a backup has none
    archive = stack.enter_context(tempfile.TemporaryFile(dir=scratch))  # noqa: SIM115
    await ledger.write_archive(archive, leave_out=[bodies])
    archive.flush()
    files: dict[str, BinaryIO] = {_LEDGER: archive}
    try:
        for name in _wanted(origin, named):
            files[name] = stack.enter_context((origin.data_dir / name).open("rb"))
    except FileNotFoundError as error:
        if named == await read_named(ledger, origin.task.task_id, shares):
            raise OperationError(f"{error.filename} is missing; run secemb check for the fix") from None
        return None
    # The ledger only moves forward: it was the same before and after, so the snapshot is consistent.
    return (named, files) if named == await read_named(ledger, origin.task.task_id, shares) else None


def _wanted(origin: Origin, named: Named) -> Iterator[str]:
    folder = f"models/{origin.task.task_id.hex()}"
    for one in {one.version for one in (named.published, named.newest) if one is not None}:
        yield f"{folder}/v{one:06d}.safetensors"
    newest = named.newest.version if named.newest is not None else 0
    made = f"v{newest + 1:06d}.safetensors"
    maybe = (f"{folder}/{name}" for name in (made, state_name(newest), state_name(newest + 1)))
    yield from (name for name in maybe if (origin.data_dir / name).exists())
    if named.running is not None and named.running.share_digest is not None:
        for path in (origin.data_dir / "shares").glob(f"{named.running.round_id.hex()}.*.share"):
            yield f"shares/{path.name}"


def _write(path: Path, origin: Origin, named: Named, files: dict[str, BinaryIO]) -> Backup:
    manifest = {
        "format": FORMAT,
        "role": origin.role,
        "task": origin.task.task_id.hex(),
        "made_at": time.time(),
        "model_version": named.published.version if named.published is not None else None,
        "files": {name: {"bytes": _size(file), "sha256": _sha256(file)} for name, file in files.items()},
    }
    text = json.dumps(manifest, indent=1).encode()
    with whole_file(path, mode=0o600) as file, tarfile.open(fileobj=file, mode="w") as tar:
        _add(tar, _MANIFEST, io.BytesIO(text), len(text))
        for name, one in files.items():
            one.seek(0)
            _add(tar, name, one, _size(one))
    return _describe(path, manifest)


def _add(tar: tarfile.TarFile, name: str, file: BinaryIO, size: int) -> None:
    member = tarfile.TarInfo(name)
    member.size, member.mode = size, 0o600
    tar.addfile(member, file)


def _size(file: BinaryIO) -> int:
    return os.fstat(file.fileno()).st_size


def _sha256(file: BinaryIO) -> str:
    file.seek(0)
    return hashlib.file_digest(file, "sha256").hexdigest()  # type: ignore[arg-type]


def _describe(path: Path, manifest: dict[str, Any]) -> Backup:
    return {
        "file": str(path),
        "made_at": manifest["made_at"],
        "model_version": manifest["model_version"],
        "files": len(manifest["files"]),
        "bytes": sum(one["bytes"] for one in manifest["files"].values()),
        "not_included": " ".join(SEPARATE),
    }


async def read_backup(ledger: Ledger, origin: Origin, path: Path) -> Backup:
    """Check all of a backup, write its files, then the ledger; nothing that exists is overwritten."""
    try:
        with tarfile.open(path, mode="r:") as tar:
            manifest = _read_manifest(tar, origin)
            members = await asyncio.to_thread(_check_files, tar, manifest["files"])
            _refuse_foreign_files(origin, manifest["files"])
            for name in members.keys() - {_LEDGER}:
                await asyncio.to_thread(_put, members[name], origin.data_dir / name)
            await ledger.restore_archive(members[_LEDGER], time.time())
    except tarfile.TarError:
        raise OperationError(f"{path} is not a backup, or is truncated; use another one") from None
    return _describe(path, manifest)


def _read_manifest(tar: tarfile.TarFile, origin: Origin) -> dict[str, Any]:
    first = tar.next()
    if first is None or first.name != _MANIFEST or first.size > _LARGEST_MANIFEST:
        raise OperationError("this is not a backup of a server; give a file written by secemb backup")
    manifest: dict[str, Any] = json.loads(_open(tar, first).read())
    if manifest["format"] != FORMAT or manifest["role"] != origin.role:
        raise OperationError(f"this is a backup of server {manifest['role']}, or was made by another version of secemb")
    if manifest["task"] != origin.task.task_id.hex():
        raise OperationError("this is a backup of another task; restore its task/ directory first")
    return manifest


def _check_files(tar: tarfile.TarFile, listed: dict[str, Any]) -> dict[str, BinaryIO]:
    """Return the files of a backup by name, if each matches the manifest and none has an unexpected path."""
    found = {member.name: member for member in tar.getmembers()[1:]}
    if found.keys() != listed.keys() or _LEDGER not in found:
        raise OperationError("the backup is incomplete; use another one")
    files = {}
    for name, member in found.items():
        if not member.isreg() or not (name == _LEDGER or _NAME.fullmatch(name)):
            raise OperationError("the backup contains unexpected files; nothing was restored")
        files[name] = _open(tar, member)
        if _sha256(files[name]) != listed[name]["sha256"]:
            raise OperationError(f"{name} in the backup has been altered; use another backup")
        files[name].seek(0)
    return files


def _open(tar: tarfile.TarFile, member: tarfile.TarInfo) -> BinaryIO:
    file = tar.extractfile(member)
    if file is None:
        raise OperationError("the backup contains unexpected files; nothing was restored")
    return file  # type: ignore[return-value]


def _refuse_foreign_files(origin: Origin, listed: dict[str, Any]) -> None:
    """Refuse a directory with models or shares other than those of the backup; an interrupted restore continues."""
    folders = (Path("models") / origin.task.task_id.hex(), Path("shares"))
    for folder in folders:
        for path in (origin.data_dir / folder).glob("[!.]*"):
            name = path.relative_to(origin.data_dir).as_posix()
            with path.open("rb") as file:
                if name not in listed or _sha256(file) != listed[name]["sha256"]:
                    raise OperationError(
                        f"{path} is in use and will not be overwritten; restore into an empty data directory"
                    )


def _put(file: BinaryIO, path: Path) -> None:
    make_folder(path.parent)
    with whole_file(path) as new:
        shutil.copyfileobj(file, new)


class LedgerFile(TypedDict):
    """An exported ledger."""

    file: str
    rows: int  # of all tables


async def upgrade_ledger(settings: Settings) -> None:
    """Create the ledger's tables, or upgrade them to this version's schema."""
    async with await open_or_create(settings) as ledger:
        await ledger.ping()


async def export_ledger(settings: Settings, path: Path) -> LedgerFile:
    """Write a consistent snapshot of the ledger to a new file; the server may be running."""
    async with await Ledger.open(settings.ledger_url(), migrate=False) as ledger:
        refuse_to_overwrite(path)
        with whole_file(path, mode=0o600) as file:
            return _described(path, await ledger.write_archive(file))


async def import_ledger(settings: Settings, path: Path) -> LedgerFile:
    """Import an exported ledger into an empty one."""
    with path.open("rb") as file:
        async with await open_or_create(settings) as ledger:
            return _described(path, await ledger.read_archive(file))


async def open_or_create(settings: Settings) -> Ledger:
    """Open the ledger; create its tables if there are none."""
    settings.data_dir.mkdir(parents=True, exist_ok=True, mode=0o700)
    return await Ledger.open(settings.ledger_url(), migrate=True)


def refuse_to_overwrite(path: Path) -> None:
    """Refuse a path that already exists."""
    if path.exists():
        raise OperationError(f"{path} already exists and will not be overwritten; choose another file")


def _described(path: Path, tables: dict[str, int]) -> LedgerFile:
    return {"file": str(path), "rows": sum(tables.values())}
