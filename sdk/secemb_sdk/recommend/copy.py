"""The device's copies of the item table: their files, and the shelf that manages them."""

import os
from collections.abc import Collection
from contextlib import suppress
from dataclasses import asdict, dataclass, field, fields, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from secemb_sdk.errors import CopyError, DamagedError
from secemb_sdk.home.files import file_digest, make_folder, read_blocks, read_file, remove_file, write_file
from secemb_sdk.home.records import Record
from secemb_sdk.models.interface import Floats
from secemb_shared.errors import MessageError
from secemb_shared.messages import TaskSpec
from secemb_shared.messages.table import CopyShape, Encoded, TableFormat
from secemb_shared.randomness import Indices


@dataclass(frozen=True, kw_only=True, eq=False)
class TableCopy:
    """One version of the table, in a file. It is public, and reveals nothing about its owner."""

    path: Path = field(repr=False)
    shape: CopyShape
    version: int
    sha256: str

    def rows(self, items: Indices) -> Floats:
        """Return the rows of these items, shape (n, width)."""
        return self.shape.decode(self.encoded[items])

    @cached_property
    def encoded(self) -> Encoded:
        """Return the file's bytes by row, read from disk on use."""
        return np.memmap(self.path, dtype=np.uint8, mode="r", shape=(self.shape.items, self.shape.row_bytes))


def apply_delta(older: Path, delta: Path, newer: Path, shape: CopyShape) -> None:
    """Apply a delta to an older copy and write the newer one; neither is held in memory."""
    try:
        numbers, rows = shape.read_delta(np.memmap(delta, dtype=np.uint8, mode="r"))
    except MessageError:
        raise CopyError("the delta from server 0 does not match this table; sync again") from None
    with newer.open("wb") as file:
        for block in read_blocks(older):
            file.write(block)
    target = np.memmap(newer, dtype=np.uint8, mode="r+", shape=(shape.items, shape.row_bytes))
    target[numbers] = rows
    target.flush()


_TABLE = {"file", "format", "sha256", "version"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Download:
    """A download: its kind, its digests and its size."""

    version: int
    format: TableFormat
    since: int | None  # the version that a delta starts from; None is a full copy
    sha256: str  # of the bytes to download
    whole: str  # of the full copy that they produce
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
        """Return the copy in use, if there is one in this format."""
        found, shape = self._recall("table", _TABLE), self.shape(format_)
        if found is None or found["format"] != format_:
            return None
        path = self._folder / found["file"]
        if not path.is_file() or path.stat().st_size != shape.copy_bytes:
            return None
        return TableCopy(path=path, shape=shape, version=found["version"], sha256=found["sha256"])

    def download(self) -> tuple[Download, int] | None:
        """Return the pending download and how many bytes have been downloaded."""
        found = self._recall("part", {field.name for field in fields(Download)})
        if found is None:
            return None
        download = Download(**(found | {"format": TableFormat(found["format"])}))
        have = self._part.stat().st_size if self._part.exists() else 0
        return (download, have) if have <= download.size else None

    def begin(self, download: Download) -> None:
        """Start this download, dropping any other one."""
        self.drop_download()
        self._write("part", asdict(download))

    def append(self, data: bytes) -> None:
        """Add the next bytes of the download."""
        with self._part.open("ab") as file:
            file.write(data)

    def drop_download(self) -> None:
        """Remove the pending download and everything made from it."""
        for path in (self._folder / "part", self._part, self._whole):
            remove_file(path)

    def assemble(self, download: Download) -> TableCopy:
        """Return the copy made from a complete download, not yet in use; raise if its digest is wrong."""
        if file_digest(self._part) != download.sha256:
            raise CopyError("the copy of the table was corrupted in transit; sync again")
        path = self._part if download.since is None else self._apply_delta(download)
        shape = self.shape(download.format)
        return TableCopy(path=path, shape=shape, version=download.version, sha256=download.whole)

    def _apply_delta(self, download: Download) -> Path:
        """Apply a delta to the copy in use and return the new file."""
        held = self.table(download.format)
        if held is None or held.version != download.since:
            raise CopyError("the delta's base copy is missing; sync again")
        apply_delta(held.path, self._part, self._whole, held.shape)
        if file_digest(self._whole) != download.whole:
            raise CopyError("applying the delta did not produce the announced copy; sync again")
        return self._whole

    def install(self, copy: TableCopy) -> TableCopy:
        """Put this copy into use, and remove what is no longer needed."""
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
                with suppress(OSError):  # some systems cannot remove an open file: retry next time
                    path.unlink()

    def _recall(self, name: str, names: Collection[str]) -> dict[str, Any] | None:
        """Return a record of this task with these fields; an unreadable one counts as missing."""
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
