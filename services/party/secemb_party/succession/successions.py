"""How this server's task goes on: what its operator has agreed to, and the link once both servers have signed it.

    successors/<task>/task.json      the successor that the operator has agreed to
                      catalogue.csv  its catalogue, if it has one
                      rows           the row map, computed here
                      terms.json     how new rows start, and whether the privacy budget continues

The agreement is a wish: it can be replaced or withdrawn. Nothing has happened until the link is in the ledger. Server 1
decides: it signs a single document for a task, in one write, and server 0 stores the link when it gets to know it.
From then on no round of the task opens on either server, and the successor begins with version 0, which is on disk
before the link is signed.
"""

import asyncio
import json
import shutil
from collections.abc import Callable
from io import StringIO
from pathlib import Path

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from secemb_party.ledger import ModelVersion
from secemb_party.parts import Parts
from secemb_party.storage import ModelStore, read_all
from secemb_party.storage.files import make_folder, write_file
from secemb_party.storage.first_version import continued_model
from secemb_party.succession.agreement import Agreement, check_budget
from secemb_party.succession.errors import SuccessionRefusedError
from secemb_party.succession.links import link_key, read_link
from secemb_shared.catalogue import FILE, Catalogue, digest_of
from secemb_shared.errors import CatalogueError, SecEmbError
from secemb_shared.messages import TaskSpec
from secemb_shared.messages.succession import CONTINUED, FRESH, Link, Succession, check_continuation
from secemb_shared.row_map import SEEDED, RowMap, map_rows

TASK, ROWS, TERMS = "task.json", "rows", "terms.json"
_FOLDER = "successors"
Found = Callable[[Link], None]


class Successions:
    """The continuation of one task on one server."""

    def __init__(self, parts: Parts) -> None:
        self._task, self._ledger, self._models = parts.task, parts.ledger, parts.models
        self._identity, self._clock, self._catalogue = parts.identity, parts.clock, parts.catalogue
        self.folder = parts.scratch / _FOLDER / parts.task.task_id.hex()
        self._store_of = parts.store_of
        self.agreed: Agreement | None = None  # the operator's wish
        self.link: Link | None = None  # once the task has a successor
        self.found: Found = _nothing  # called when it gets one

    async def start(self) -> None:
        """Read whether the task has a successor, and what the operator has agreed to."""
        self.link = await read_link(self._ledger, self._task.task_id)
        self.agreed = await asyncio.to_thread(self._read, self.folder)

    # The operator's wish.

    async def agree(self, spec: bytes, catalogue: bytes | None, *, start: str = SEEDED, budget: str = CONTINUED) -> str:
        """Check everything about a successor and store it as agreed; return the digest of the agreement."""
        if self.link is not None:
            raise SuccessionRefusedError("this task already has a successor")
        self.agreed = await asyncio.to_thread(self._agree, spec, catalogue, start, budget)
        return self.agreed.digest

    def _agree(self, spec: bytes, catalogue: bytes | None, start: str, budget: str) -> Agreement:
        try:
            task = TaskSpec.decode(spec)
            check_continuation(self._task, task)
            check_budget(self._task, task, budget)
            if catalogue is None and self._catalogue is not None and task.catalogue == self._task.catalogue:
                catalogue = bytes(read_all(self._catalogue))
            rows = self._map(task, catalogue, start)
        except SecEmbError as error:
            raise SuccessionRefusedError(str(error)) from error
        if budget not in (CONTINUED, FRESH):
            raise SuccessionRefusedError(f"budget must be {CONTINUED} or {FRESH}")
        self._check_identity()
        found = Agreement(task=task, rows=rows, start=start, budget=budget)
        fresh = self.folder.with_suffix(".new")
        shutil.rmtree(fresh, ignore_errors=True)
        make_folder(fresh)
        write_file(fresh / TASK, spec)
        write_file(fresh / ROWS, rows.encode())
        write_file(fresh / TERMS, json.dumps({"start": start, "budget": budget}).encode())
        if catalogue is not None:
            write_file(fresh / FILE, catalogue)
        self._put_aside()
        fresh.rename(self.folder)
        return found

    def _map(self, task: TaskSpec, catalogue: bytes | None, start: str) -> RowMap:
        if (digest_of(catalogue) if catalogue is not None else "") != task.catalogue:
            raise CatalogueError("the catalogue is not the one that the successor names")
        if bool(task.catalogue) != bool(self._task.catalogue):
            raise CatalogueError("both tasks must have a catalogue, or neither")
        old = _parse(read_all(self._catalogue)) if self._catalogue is not None else Catalogue()
        new = _parse(catalogue) if catalogue is not None else Catalogue()
        return map_rows(old, new, before=self._task.items, rows=task.items, start=start)

    def _check_identity(self) -> Ed25519PrivateKey:
        if self._identity is None:
            raise SuccessionRefusedError("this server has no identity to sign with; set its identity_file")
        public = self._identity.public_key().public_bytes_raw().hex()
        if public not in (self._task.identities or ()):
            raise SuccessionRefusedError("this server's identity is not one of those that the task names")
        return self._identity

    async def withdraw(self) -> None:
        """Drop the agreement, unless the switch has happened."""
        if self.link is None:
            self.agreed = None
            await asyncio.to_thread(self._put_aside)

    def _put_aside(self) -> None:
        """Keep the last agreement that was dropped: the other server may have switched to it in the meantime."""
        if self.folder.exists():
            shutil.rmtree(self._aside, ignore_errors=True)
            self.folder.rename(self._aside)

    def recall(self, named: Succession) -> Agreement | None:
        """Return the agreement that a signed document is about, also if it was dropped since; it is put back."""
        for folder in (self.folder, self._aside):
            found = self._read(folder)
            if found is None or (found.task.task_id.hex(), found.rows.digest.hex()) != (named.successor, named.rows):
                continue
            if folder == self._aside:
                shutil.rmtree(self.folder, ignore_errors=True)
                folder.rename(self.folder)
            self.agreed = found
            return found
        return None

    @property
    def _aside(self) -> Path:
        return self.folder.with_suffix(".old")

    def _read(self, folder: Path) -> Agreement | None:
        try:
            task = TaskSpec.decode((folder / TASK).read_bytes())
            terms = json.loads((folder / TERMS).read_bytes())
            rows = RowMap.decode((folder / ROWS).read_bytes(), before=self._task.items, rows=task.items)
            return Agreement(task=task, rows=rows, start=terms["start"], budget=terms["budget"])
        except (OSError, ValueError, KeyError, SecEmbError):
            return None

    async def row_map(self) -> bytes:
        """Return the row map of the successor."""
        return await asyncio.to_thread((self.folder / ROWS).read_bytes)

    def catalogue(self) -> bytes | None:
        """Return the catalogue of the successor, if it has one."""
        path = self.folder / FILE
        return path.read_bytes() if path.exists() else None

    # The switch.

    def prepare(self, agreed: Agreement, published: ModelVersion) -> Succession:
        """Make version 0 of the successor and return the document; it can be repeated."""
        last = self._models.load(published.version)
        if last.digest != published.digest:
            raise SuccessionRefusedError("the file of the published model is damaged; run `secemb model fetch`")
        first = continued_model(last, agreed.task, agreed.rows)
        self.store(agreed.task).replace(first)
        return agreed.name(last, first)

    def store(self, task: TaskSpec) -> ModelStore:
        """Return the models of the successor."""
        if self._store_of is None:
            raise SuccessionRefusedError("this server cannot store the models of a successor")
        return self._store_of(task)

    def sign(self, succession: Succession) -> bytes:
        """Return this server's signature."""
        return succession.sign(self._check_identity())

    async def commit(self, link: Link) -> Link:
        """Store the link: from now on the task has a successor. The first link counts; it is returned."""
        link.check(self._task)
        value = json.dumps(link.as_json()).encode()
        stored = await self._ledger.remember(link_key(self._task.task_id), value, self._clock())
        known = self.link is not None
        self.link = Link.from_json(json.loads(stored))
        if not known:
            named = {"successor": link.succession.successor, "version": link.succession.last_version}
            await self._ledger.append_event("succession", named, self._clock(), task=self._task.task_id)
            self.found(self.link)
        return self.link


def _parse(catalogue: bytes | memoryview) -> Catalogue:
    try:
        return Catalogue.read(StringIO(str(catalogue, "utf-8"), newline=""))
    except UnicodeDecodeError:
        raise CatalogueError("the catalogue is not UTF-8; regenerate it") from None


def _nothing(_link: Link) -> None:
    """Do nothing when a successor is found."""
