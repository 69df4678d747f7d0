"""The device's copy of the item table: its file, its place on disk, and how it is updated."""

import hashlib
import os
import re
from collections.abc import Collection, Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass, field, fields, replace
from functools import cached_property, partial
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np

from secemb_sdk.errors import CopyError, DamagedError, GoneError, RefusedError
from secemb_sdk.exchange import Exchange
from secemb_sdk.home.detections import Misconduct
from secemb_sdk.home.files import make_folder, read_file, remove_file, write_file
from secemb_sdk.home.records import Record
from secemb_sdk.models.interface import Floats
from secemb_sdk.round.join import Published
from secemb_sdk.steps import Answer, Request, Steps, work
from secemb_shared.errors import MessageError
from secemb_shared.messages import TaskSpec
from secemb_shared.messages.table import COUNT_BYTES, CopyShape, Encoded, TableFormat, model_digest
from secemb_shared.randomness import Indices

_BLOCK = 2**20


@dataclass(frozen=True, kw_only=True, eq=False)
class TableCopy:
    """One version of the table, in a file. It is public, and says nothing about its owner."""

    path: Path = field(repr=False)
    shape: CopyShape
    version: int
    sha256: str

    def rows(self, items: Indices) -> Floats:
        """Return the rows of these items, shape (n, width)."""
        return self.shape.decode(self.encoded[items])

    @cached_property
    def encoded(self) -> Encoded:
        """Return the file's bytes by row, read from the disk as they are used."""
        return np.memmap(self.path, dtype=np.uint8, mode="r", shape=(self.shape.items, self.shape.row_bytes))


def apply_delta(older: Path, delta: Path, newer: Path, shape: CopyShape) -> None:
    """Apply a delta to an older copy and write the newer one; neither is held in memory."""
    try:
        numbers, rows = shape.read_delta(np.memmap(delta, dtype=np.uint8, mode="r"))
    except MessageError:
        raise CopyError("server 0's delta is not one of this table; sync again") from None
    with newer.open("wb") as file:
        for block in read_blocks(older):
            file.write(block)
    target = np.memmap(newer, dtype=np.uint8, mode="r+", shape=(shape.items, shape.row_bytes))
    target[numbers] = rows
    target.flush()


def file_digest(path: Path) -> str:
    """Return the SHA-256 of a file."""
    hashed = hashlib.sha256()
    for block in read_blocks(path):
        hashed.update(block)
    return hashed.hexdigest()


def read_blocks(path: Path) -> Iterator[bytes]:
    """Yield a file in blocks."""
    with path.open("rb") as file:
        while block := file.read(_BLOCK):
            yield block


_TABLE = {"file", "format", "sha256", "version"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Download:
    """A download: what it is, its digests and its size."""

    version: int
    format: TableFormat
    since: int | None  # the version that a delta starts from; None is a full copy
    sha256: str  # of the bytes to download
    whole: str  # of the full copy that they make
    size: int


class Shelf:
    """One device's copies of one task's public model."""

    def __init__(self, folder: Path, task: TaskSpec) -> None:
        self.task = task
        self._folder, self._part, self._whole = folder, folder / "part.bytes", folder / "part.whole"

    def shape(self, format_: TableFormat) -> CopyShape:
        """Return the sizes of copies in a format."""
        return CopyShape(format=format_, items=self.task.items, width=self.task.row_width)

    def table(self, format_: TableFormat) -> TableCopy | None:
        """Return the copy that is in use, if there is one in this format."""
        found, shape = self._recall("table", _TABLE), self.shape(format_)
        if found is None or found["format"] != format_:
            return None
        path = self._folder / found["file"]
        if not path.is_file() or path.stat().st_size != shape.copy_bytes:
            return None
        return TableCopy(path=path, shape=shape, version=found["version"], sha256=found["sha256"])

    def download(self) -> tuple[Download, int] | None:
        """Return the pending download and how many bytes of it are here."""
        found = self._recall("part", {field.name for field in fields(Download)})
        if found is None:
            return None
        download = Download(**(found | {"format": TableFormat(found["format"])}))
        have = self._part.stat().st_size if self._part.exists() else 0
        return (download, have) if have <= download.size else None

    def begin(self, download: Download) -> None:
        """Drop any other download and begin this one."""
        self.drop_download()
        self._write("part", asdict(download))

    def append(self, data: bytes) -> None:
        """Add the next bytes of the download."""
        with self._part.open("ab") as file:
            file.write(data)

    def drop_download(self) -> None:
        """Remove the pending download and what was made of it."""
        for path in (self._folder / "part", self._part, self._whole):
            remove_file(path)

    def assemble(self, download: Download) -> TableCopy:
        """Return the copy that a complete download makes, not yet in use; raise if its digest is wrong."""
        if file_digest(self._part) != download.sha256:
            raise CopyError("the copy of the table was damaged on its way; sync again")
        path = self._part if download.since is None else self._apply_delta(download)
        shape = self.shape(download.format)
        return TableCopy(path=path, shape=shape, version=download.version, sha256=download.whole)

    def _apply_delta(self, download: Download) -> Path:
        """Apply a delta to the copy in use and return the new file."""
        held = self.table(download.format)
        if held is None or held.version != download.since:
            raise CopyError("the copy that the delta starts from is gone; sync again")
        apply_delta(held.path, self._part, self._whole, held.shape)
        if file_digest(self._whole) != download.whole:
            raise CopyError("the delta does not produce the announced copy; sync again")
        return self._whole

    def install(self, copy: TableCopy) -> TableCopy:
        """Use this copy from now on, and remove what is no longer needed."""
        path = self._folder / f"table-{copy.version}-{copy.sha256[:16]}.{copy.shape.format}"
        with copy.path.open("rb") as file:
            os.fsync(file.fileno())
        os.replace(copy.path, path)
        named = {"format": copy.shape.format, "version": copy.version, "sha256": copy.sha256, "file": path.name}
        self._write("table", named)
        self.drop_download()
        self._remove_all_but(path)
        return replace(copy, path=path)

    def _remove_all_but(self, used: Path) -> None:
        for path in self._folder.glob("table-*"):
            if path != used:
                with suppress(OSError):  # some systems keep a file that is open: next time
                    path.unlink()

    def _recall(self, name: str, names: Collection[str]) -> dict[str, Any] | None:
        """Return a record of this task with these fields; one that cannot be read counts as missing."""
        data = read_file(self._folder / name)
        try:
            found = {} if data is None else dict(Record.decode(data).fields)
        except DamagedError:
            return None
        mine = found.pop("task", None) == self.task.task_id.hex()
        return found if mine and found.keys() == set(names) else None

    def _write(self, name: str, values: dict[str, Any]) -> None:
        make_folder(self._folder)
        write_file(self._folder / name, Record({**values, "task": self.task.task_id.hex()}).encode())


CHUNK = 2**20
_SAME = 304
PIECE_SECONDS = 300.0  # a piece that is cut off is lost, so slow networks must be able to finish one
_DIGEST = re.compile(r"[0-9a-f]{64}")
_ETAG = re.compile(r'"([0-9a-f]{64})"')
_CONTENT_RANGE = re.compile(r"bytes (\d{1,18})-(\d{1,18})/(\d{1,18})")


@dataclass(frozen=True, slots=True)
class _Target:
    """The copy to download: all of it, or what changed since a version."""

    version: int
    format: TableFormat
    since: int | None = None

    def is_of(self, download: Download) -> bool:
        return (download.version, download.format, download.since) == (self.version, self.format, self.since)


def sync(
    exchange: Exchange, shelf: Shelf, published: Published, *, dense: Floats, format_: TableFormat, chunk: int = CHUNK
) -> Steps[TableCopy]:
    """Return a copy of the published table, downloaded only if it is not here; `dense` has the same version."""
    held = yield from work(lambda: shelf.table(format_))
    if held is not None and held.version == published.version:
        return held
    copy = None
    if held is not None and held.version < published.version:
        copy = yield from _fetch_delta(exchange, shelf, _Target(published.version, format_, held.version), chunk)
    if copy is None:
        copy = yield from _fetch(exchange, shelf, _Target(published.version, format_), chunk)
    yield from _check(exchange, shelf, copy, dense, published.digest)
    return (yield from work(lambda: shelf.install(copy)))


def _fetch_delta(exchange: Exchange, shelf: Shelf, target: _Target, chunk: int) -> Steps[TableCopy | None]:
    """Return the new copy by way of a delta, or nothing: the full copy can always be fetched instead."""
    try:
        return (yield from _fetch(exchange, shelf, target, chunk))
    except (CopyError, GoneError, RefusedError):
        return None


def _fetch(exchange: Exchange, shelf: Shelf, target: _Target, chunk: int) -> Steps[TableCopy]:
    """Return the copy that server 0 has, complete and undamaged, but not yet in use."""
    try:
        download = yield from _download(exchange, shelf, target, chunk)
        return (yield from work(lambda: shelf.assemble(download)))
    except (CopyError, RefusedError):  # refused: the piece begins after the end of what server 0 has now
        yield from work(shelf.drop_download)
        raise


def _download(exchange: Exchange, shelf: Shelf, target: _Target, chunk: int) -> Steps[Download]:
    found = yield from work(shelf.download)
    download, have = found if found is not None and target.is_of(found[0]) else (None, 0)
    while download is None or have < download.size:
        (answer,) = yield from exchange.ask(_piece_of(shelf.task, target, have, chunk))
        same = _read_piece(shelf, target, answer, have)
        if download is None:
            download = same
            yield from work(partial(shelf.begin, same))
        elif same != download:
            raise CopyError("server 0 has replaced the copy during the download; sync again")
        yield from work(partial(shelf.append, answer.body))
        have += len(answer.body)
    return download


def _check(exchange: Exchange, shelf: Shelf, copy: TableCopy, dense: Floats, digest: bytes) -> Steps[None]:
    """Raise, and drop the download, unless server 1 has the same copy and it is the announced model."""
    try:
        yield from _compare(exchange, shelf.task, copy)
        if copy.shape.format is TableFormat.FLOAT32:
            yield from work(lambda: check_model(shelf.task, copy, dense, digest))
    except CopyError:
        yield from work(shelf.drop_download)
        raise


def _compare(exchange: Exchange, task: TaskSpec, copy: TableCopy) -> Steps[None]:
    """Raise unless server 1 has the same bytes; if it has others, it sends only one byte of them."""
    path = _path(task, _Target(copy.version, copy.shape.format))
    headers = {"if-none-match": f'"{copy.sha256}"', "range": "bytes=0-0"}
    (answer,) = yield from exchange.ask(Request(server=1, method="GET", path=path, headers=headers))
    if answer.status != _SAME:
        raise CopyError(
            "the two servers publish different tables; use neither, and tell both operators", noticed=Misconduct.TABLE
        )


def check_model(task: TaskSpec, copy: TableCopy, dense: Floats, digest: bytes) -> None:
    """Raise unless a copy in float32 and the dense part are the model of this digest."""
    parts: Iterator[bytes] = chain(read_blocks(copy.path), [np.ascontiguousarray(dense, dtype="<f4").tobytes()])
    found = model_digest(
        task.task_id,
        version=copy.version,
        items=task.items,
        width=task.row_width,
        dense=task.dense_size,
        parts=parts,
    )
    if found != digest:
        raise CopyError(
            "the table and the dense part are not the model that both servers have announced", noticed=Misconduct.TABLE
        )


def _path(task: TaskSpec, target: _Target) -> str:
    since = "" if target.since is None else f"&since={target.since}"
    return f"/v1/tasks/{task.task_id.hex()}/table/{target.version}?format={target.format}{since}"


def _piece_of(task: TaskSpec, target: _Target, first: int, count: int) -> Request:
    headers = {"range": f"bytes={first}-{first + count - 1}"}
    path, most = _path(task, target), max(count, CHUNK)
    return Request(server=0, method="GET", path=path, headers=headers, most=most, seconds=PIECE_SECONDS)


def _read_piece(shelf: Shelf, target: _Target, answer: Answer, first: int) -> Download:
    """Return the download that a piece belongs to; refuse a piece that is not the next, or of an impossible size."""
    size = full_size(answer, first)
    etag = _ETAG.fullmatch(answer.headers.get("etag", ""))
    sha256 = etag[1] if etag else ""
    whole = sha256 if target.since is None else answer.headers.get("secemb-copy-sha256", "")
    shape = shelf.shape(target.format)
    least, most = (COUNT_BYTES, shape.longest_delta) if target.since is not None else (shape.copy_bytes,) * 2
    if not sha256 or not _DIGEST.fullmatch(whole) or not least <= size <= most:
        raise CopyError("server 0's copy does not have the size or digest of this task's table; sync again")
    return Download(
        version=target.version, format=target.format, since=target.since, sha256=sha256, whole=whole, size=size
    )


def full_size(answer: Answer, first: int) -> int:
    """Return the size of the whole that a piece belongs to; raise unless the piece begins at `first`."""
    count = len(answer.body)
    if answer.status == 200 and not first:
        return count  # a proxy may ignore ranges
    found = _CONTENT_RANGE.fullmatch(answer.headers.get("content-range", "")) if answer.status == 206 else None
    if not count or found is None or (int(found[1]), int(found[2])) != (first, first + count - 1):
        raise CopyError("server 0 sent a different piece than this device asked for; sync again")
    return int(found[3])
