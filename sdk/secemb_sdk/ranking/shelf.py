"""Where a device keeps what it has copied: a folder of public data, a cache that can be lost at any time.

    table           which copy is in use: task, format, version, SHA-256 and the name of its file
    table-…         the copy itself
    part            which download is under way, and …
    part.bytes      … what of it has come so far
    part.whole      what a delta has made of the copy in use, until it is found to be right

A file is in use only once a record names it, and the record is replaced as a whole; what no record names is removed.
"""

import os
from collections.abc import Collection
from contextlib import suppress
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any

from secemb_sdk.durable import make_folder, read_file, remove_file, write_file
from secemb_sdk.errors import DamagedError
from secemb_sdk.ranking.errors import CopyError
from secemb_sdk.ranking.table_copy import TableCopy, apply_delta, file_digest
from secemb_sdk.record import Record
from secemb_shared.messages import TaskSpec
from secemb_shared.messages.table import CopyShape, TableFormat

_TABLE = {"file", "format", "sha256", "version"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Download:
    """What is being fetched, by which digests it is known, and how long it is."""

    version: int
    format: TableFormat
    since: int | None  # the version that a delta starts from; None is a full copy
    sha256: str  # of the bytes that come
    whole: str  # of the full copy that they lead to
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
        """Return what is being fetched and how many bytes of it are here."""
        found = self._recall("part", {field.name for field in fields(Download)})
        if found is None:
            return None
        download = Download(**(found | {"format": TableFormat(found["format"])}))
        have = self._part.stat().st_size if self._part.exists() else 0
        return (download, have) if have <= download.size else None

    def begin(self, download: Download) -> None:
        """Forget any other download and begin this one."""
        self.drop_download()
        self._write("part", asdict(download))

    def append(self, data: bytes) -> None:
        """Add the next bytes of the download."""
        with self._part.open("ab") as file:
            file.write(data)

    def drop_download(self) -> None:
        """Forget what was being fetched and what was made of it."""
        for path in (self._folder / "part", self._part, self._whole):
            remove_file(path)

    def assemble(self, download: Download) -> TableCopy:
        """Return the copy that a complete download leads to, not yet in use; raise if it is not what it should be."""
        if file_digest(self._part) != download.sha256:
            raise CopyError("the copy of the table was damaged on its way; sync again to fetch it anew")
        path = self._part if download.since is None else self._apply_delta(download)
        shape = self.shape(download.format)
        return TableCopy(path=path, shape=shape, version=download.version, sha256=download.whole)

    def _apply_delta(self, download: Download) -> Path:
        """Return the file that a delta makes of the copy in use."""
        held = self.table(download.format)
        if held is None or held.version != download.since:
            raise CopyError("the copy that the delta starts from is gone; sync again to fetch it anew")
        apply_delta(held.path, self._part, self._whole, held.shape)
        if file_digest(self._whole) != download.whole:
            raise CopyError("the delta does not lead to the copy that it should lead to; sync again")
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
                with suppress(OSError):  # a system may hold on to a file that is being looked at: next time
                    path.unlink()

    def _recall(self, name: str, names: Collection[str]) -> dict[str, Any] | None:
        """Return a record of this task with these fields; one that cannot be read is as good as none."""
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
