"""Updates a device's copy of the item table: in pieces, as a full copy or a delta, and verified."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from itertools import chain

import numpy as np

from secemb_sdk.errors import CopyError, GoneError, RefusedError
from secemb_sdk.exchange import Exchange
from secemb_sdk.home.detections import Misconduct
from secemb_sdk.home.files import read_blocks
from secemb_sdk.models.interface import Floats
from secemb_sdk.recommend.copy import Download, Shelf, TableCopy
from secemb_sdk.round.join import Published
from secemb_sdk.steps import Answer, Request, Steps, work
from secemb_shared.messages import RoundSpec, Sizes, TaskSpec
from secemb_shared.messages.table import COUNT_BYTES, TableFormat, model_digest

CHUNK = 2**20
_SAME = 304
PIECE_SECONDS = 300.0  # a truncated piece is lost, so slow networks must be able to finish one
_DIGEST = re.compile(r"[0-9a-f]{64}")
_ETAG = re.compile(r'"([0-9a-f]{64})"')
_CONTENT_RANGE = re.compile(r"bytes (\d{1,18})-(\d{1,18})/(\d{1,18})")


@dataclass(frozen=True, slots=True)
class _Target:
    """The copy to download: all of it, or the changes since a version."""

    version: int
    format: TableFormat
    since: int | None = None

    def is_of(self, download: Download) -> bool:
        return (download.version, download.format, download.since) == (self.version, self.format, self.since)


def sync(
    exchange: Exchange,
    shelf: Shelf,
    published: Published,
    *,
    dense: Floats,
    format_: TableFormat,
    compare: bool = True,  # with server 1; not if server 1 has already sent the digest
    chunk: int = CHUNK,
) -> Steps[TableCopy]:
    """Return a copy of the published table, downloaded only if missing; `dense` has the same version."""
    held = yield from work(lambda: shelf.table(format_))
    if held is not None and held.version == published.version:
        return held
    copy = None
    if held is not None and held.version < published.version:
        copy = yield from _fetch_delta(exchange, shelf, _Target(published.version, format_, held.version), chunk)
    if copy is None:
        copy = yield from _fetch(exchange, shelf, _Target(published.version, format_), chunk)
    yield from _check(exchange, shelf, copy, dense, published.digest, compare=compare)
    return (yield from work(lambda: shelf.install(copy)))


def read_whole_table(exchange: Exchange, round_: RoundSpec, dense: Floats) -> Steps[Floats | None]:
    """Return all rows that a round reads; None if they are unavailable, or the policy does not allow as many bytes.

    They are verified by the digest in the round's specification, which both servers have sent. This copy
    is kept separately from the one for recommendations, whose dense part may be of another version.
    """
    task, published = round_.task, Published(round_.model_version, round_.model_digest)
    shelf = Shelf(exchange.context.vault.public_folder / "evaluation", task)
    try:
        # Leaves room for the upload, or the session would be lost.
        exact = TableFormat.exact(task.row_bits)
        exchange.check_room(shelf.shape(exact).copy_bytes + Sizes.of(task).upload)
        steps = sync(exchange, shelf, published, dense=dense, format_=exact, compare=False)
        copy = yield from exchange.noting(steps)
    except (CopyError, GoneError, RefusedError):
        return None
    return (yield from work(lambda: copy.rows(np.arange(task.items))))


def _fetch_delta(exchange: Exchange, shelf: Shelf, target: _Target, chunk: int) -> Steps[TableCopy | None]:
    """Return the new copy by applying a delta, or None: the full copy can always be fetched instead."""
    try:
        return (yield from _fetch(exchange, shelf, target, chunk))
    except (CopyError, GoneError, RefusedError):
        return None


def _fetch(exchange: Exchange, shelf: Shelf, target: _Target, chunk: int) -> Steps[TableCopy]:
    """Return server 0's copy, complete and verified, but not yet in use."""
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
            raise CopyError("server 0 replaced the copy during the download; sync again")
        yield from work(partial(shelf.append, answer.body))
        have += len(answer.body)
    return download


def _check(
    exchange: Exchange, shelf: Shelf, copy: TableCopy, dense: Floats, digest: bytes, *, compare: bool
) -> Steps[None]:
    """Raise, and drop the download, unless server 1 has the same copy and it is the announced model."""
    try:
        if compare:
            yield from _compare(exchange, shelf.task, copy)
        if copy.shape.format in (TableFormat.FLOAT32, TableFormat.exact(shelf.task.row_bits)):
            yield from work(lambda: check_model(shelf.task, copy, dense, digest))
    except CopyError:
        yield from work(shelf.drop_download)
        raise


def _compare(exchange: Exchange, task: TaskSpec, copy: TableCopy) -> Steps[None]:
    """Raise unless server 1 has the same bytes; if it has different ones, it sends only one byte of them."""
    path = _path(task, _Target(copy.version, copy.shape.format))
    headers = {"if-none-match": f'"{copy.sha256}"', "range": "bytes=0-0"}
    (answer,) = yield from exchange.ask(Request(server=1, method="GET", path=path, headers=headers))
    if answer.status != _SAME:
        raise CopyError(
            "the two servers publish different tables, so neither is used; tell both operators",
            noticed=Misconduct.TABLE,
        )


def check_model(task: TaskSpec, copy: TableCopy, dense: Floats, digest: bytes) -> None:
    """Raise unless an exact copy and the dense part match this model digest, which covers float32 numbers."""
    blocks: Iterator[bytes] = read_blocks(copy.path)
    if copy.shape.format is TableFormat.FLOAT16:
        blocks = (np.frombuffer(block, "<f2").astype("<f4").tobytes() for block in blocks)
    parts = chain(blocks, [np.ascontiguousarray(dense, dtype="<f4").tobytes()])
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
            "the table and dense part do not match the model that both servers announced; sync again",
            noticed=Misconduct.TABLE,
        )


def _path(task: TaskSpec, target: _Target) -> str:
    since = "" if target.since is None else f"&since={target.since}"
    return f"/v1/tasks/{task.task_id.hex()}/table/{target.version}?format={target.format}{since}"


def _piece_of(task: TaskSpec, target: _Target, first: int, count: int) -> Request:
    headers = {"range": f"bytes={first}-{first + count - 1}"}
    path, most = _path(task, target), max(count, CHUNK)
    return Request(server=0, method="GET", path=path, headers=headers, most=most, seconds=PIECE_SECONDS)


def _read_piece(shelf: Shelf, target: _Target, answer: Answer, first: int) -> Download:
    """Return the download that a piece belongs to; refuse one that is not next, or has an impossible size."""
    size = full_size(answer, first)
    etag = _ETAG.fullmatch(answer.headers.get("etag", ""))
    sha256 = etag[1] if etag else ""
    whole = sha256 if target.since is None else answer.headers.get("secemb-copy-sha256", "")
    shape = shelf.shape(target.format)
    least, most = (COUNT_BYTES, shape.longest_delta) if target.since is not None else (shape.copy_bytes,) * 2
    if not sha256 or not _DIGEST.fullmatch(whole) or not least <= size <= most:
        raise CopyError("the copy from server 0 has the wrong size or digest for this task; sync again")
    return Download(
        version=target.version, format=target.format, since=target.since, sha256=sha256, whole=whole, size=size
    )


def full_size(answer: Answer, first: int) -> int:
    """Return the total size of the file that a piece belongs to; raise unless the piece begins at `first`."""
    count = len(answer.body)
    if answer.status == 200 and not first:
        return count  # a proxy may ignore ranges
    found = _CONTENT_RANGE.fullmatch(answer.headers.get("content-range", "")) if answer.status == 206 else None
    if not count or found is None or (int(found[1]), int(found[2])) != (first, first + count - 1):
        raise CopyError("server 0 sent a different part of the file than requested; sync again")
    return int(found[3])
