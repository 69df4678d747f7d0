"""Keeping a copy of the table: what changed since the last one where a server still knows, else all of it.

A copy is fetched from server 0, piece by piece, and goes on where it stopped. It is used only if server 1 has the same
one, and in float32 only if, together with the dense part, it is the model whose digest both servers have announced.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from itertools import chain

import numpy as np

from secemb_sdk.detections import Misconduct
from secemb_sdk.effects import Answer, Request, Steps, work
from secemb_sdk.errors import OverError
from secemb_sdk.models.interface import Floats
from secemb_sdk.problems import error_for
from secemb_sdk.ranking.asking import Ask
from secemb_sdk.ranking.errors import CopyError
from secemb_sdk.ranking.shelf import Download, Shelf
from secemb_sdk.ranking.table_copy import TableCopy, read_blocks
from secemb_shared.messages import TaskSpec
from secemb_shared.messages.model_digest import model_digest
from secemb_shared.messages.table import COUNT_BYTES, TableFormat

CHUNK = 2**20
_PIECE_SECONDS = 300.0  # half a piece is lost: slow networks must be able to finish one
_DIGEST = re.compile(r"[0-9a-f]{64}")
_ETAG = re.compile(r'"([0-9a-f]{64})"')
_CONTENT_RANGE = re.compile(r"bytes (\d{1,18})-(\d{1,18})/(\d{1,18})")


@dataclass(frozen=True, slots=True)
class Published:
    """The version of the model that both servers have announced, and its digest."""

    version: int
    digest: bytes


@dataclass(frozen=True, slots=True)
class _Target:
    """The copy that is wanted, as a whole or as what changed since a version."""

    version: int
    format: TableFormat
    since: int | None = None

    def is_of(self, download: Download) -> bool:
        return (download.version, download.format, download.since) == (self.version, self.format, self.since)


def sync_steps(
    shelf: Shelf,
    published: Published,
    *,
    dense: Floats,
    format_: TableFormat,
    chunk: int = CHUNK,
    ask: Ask,
) -> Steps[TableCopy]:
    """Return a copy of the published table, fetched only if it is not here; `dense` is of the same version."""
    held = yield from work(lambda: shelf.table(format_))
    if held is not None and held.version == published.version:
        return held
    copy = None
    if held is not None and held.version < published.version:
        copy = yield from _delta_steps(shelf, _Target(published.version, format_, held.version), chunk, ask)
    if copy is None:
        copy = yield from _fetch_steps(shelf, _Target(published.version, format_), chunk, ask)
    yield from _check_steps(shelf, copy, dense, published.digest, ask)
    return (yield from work(lambda: shelf.install(copy)))


def _delta_steps(shelf: Shelf, target: _Target, chunk: int, ask: Ask) -> Steps[TableCopy | None]:
    """Return the new copy by way of a delta, or nothing: the full copy is always another way."""
    try:
        return (yield from _fetch_steps(shelf, target, chunk, ask))
    except (CopyError, OverError):
        return None


def _fetch_steps(shelf: Shelf, target: _Target, chunk: int, ask: Ask) -> Steps[TableCopy]:
    """Return what the servers call this copy, complete and undamaged, but not yet in use."""
    try:
        download = yield from _download_steps(shelf, target, chunk, ask)
        return (yield from work(lambda: shelf.assemble(download)))
    except CopyError:
        yield from work(shelf.drop_download)
        raise


def _download_steps(shelf: Shelf, target: _Target, chunk: int, ask: Ask) -> Steps[Download]:
    found = yield from work(shelf.download)
    download, have = found if found is not None and target.is_of(found[0]) else (None, 0)
    while download is None or have < download.size:
        (answer,) = yield from ask(_piece_of(shelf.task, target, have, chunk))
        if answer.status in (404, 410) and target.since is not None:
            raise OverError("no server knows a way from the copy that is here to the new one")
        if answer.status not in (200, 206, 416):
            raise error_for(0, answer)
        same = _read_piece(shelf, target, answer, have)
        if download is None:
            download = same
            yield from work(partial(shelf.begin, same))
        elif same != download:
            raise CopyError("server 0 has another copy under the same name now; sync again")
        yield from work(partial(shelf.append, answer.body))
        have += len(answer.body)
    return download


def _check_steps(shelf: Shelf, copy: TableCopy, dense: Floats, digest: bytes, ask: Ask) -> Steps[None]:
    """Raise, and let nothing of it be used, unless server 1 has the same copy and it is the announced model."""
    try:
        yield from _same_steps(shelf.task, copy, ask)
        if copy.shape.format is TableFormat.FLOAT32:
            yield from work(lambda: check_model(shelf.task, copy, dense, digest))
    except CopyError:
        yield from work(shelf.drop_download)
        raise


def _same_steps(task: TaskSpec, copy: TableCopy, ask: Ask) -> Steps[None]:
    """Raise unless server 1 has these very bytes; if it has others, one byte of them is all that comes."""
    path = _path(task, _Target(copy.version, copy.shape.format))
    headers = {"if-none-match": f'"{copy.sha256}"', "range": "bytes=0-0"}
    (answer,) = yield from ask(Request(server=1, method="GET", path=path, headers=headers))
    if answer.status in (200, 206):
        raise CopyError(
            "the two servers publish different tables; use neither, and tell both operators", noticed=Misconduct.TABLE
        )
    if answer.status != 304:
        raise error_for(1, answer)


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
    return Request(server=0, method="GET", path=path, headers=headers, most=most, seconds=_PIECE_SECONDS)


def _read_piece(shelf: Shelf, target: _Target, answer: Answer, first: int) -> Download:
    """Return what a piece is part of; refuse one that is not the next, or of something that cannot be."""
    size = _full_size(answer, first)
    etag = _ETAG.fullmatch(answer.headers.get("etag", ""))
    sha256 = etag[1] if etag else ""
    whole = sha256 if target.since is None else answer.headers.get("secemb-copy-sha256", "")
    shape = shelf.shape(target.format)
    least, most = (COUNT_BYTES, shape.longest_delta) if target.since is not None else (shape.copy_bytes,) * 2
    if not sha256 or not _DIGEST.fullmatch(whole) or not least <= size <= most:
        raise CopyError("server 0's copy is not one of this task's table; sync again")
    return Download(
        version=target.version, format=target.format, since=target.since, sha256=sha256, whole=whole, size=size
    )


def _full_size(answer: Answer, first: int) -> int:
    """Return how long the whole is that a piece belongs to, if it is the piece that begins at `first`."""
    count = len(answer.body)
    if answer.status == 200 and not first:
        return count  # something in between takes no notice of ranges
    found = _CONTENT_RANGE.fullmatch(answer.headers.get("content-range", "")) if answer.status == 206 else None
    if not count or found is None or (int(found[1]), int(found[2])) != (first, first + count - 1):
        raise CopyError("server 0 sent another piece than it was asked for; sync again")
    return int(found[3])
