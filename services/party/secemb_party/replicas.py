"""Replicas: several processes that are one server, on one ledger and one set of stores.

The ledger decides, so any replica can answer any request of a device. What a replica keeps in memory is either its own
affair (caches, rates, bytes in memory) or follows the ledger within a second: instructions, versions, ended rounds.
"""

import asyncio
import secrets
from pathlib import Path

from secemb_party.errors import LedgerError, SettingsError
from secemb_party.ledger import Ledger
from secemb_party.logs import Outage
from secemb_party.service import Party
from secemb_party.storage.objects import FolderObjects, Objects

_STORES, _FOLDER = "stores-id", "data-id"
_SELDOM = 5  # turns between two looks for a successor, which is a file
_EVERY_SECONDS = 1.0  # well below the time after which PostgreSQL ends a replica's claim
_DIFFERENT = (
    "the replicas of this server do not use the same stores; give all of them the same [storage] url, or a data_dir"
    " that they share. After moving the stores, move the object stores-id too"
)
_OTHER_FOLDER = (
    "the replicas of server 1 do not share data_dir, and relay keys are in it; mount one file system in all of them, or"
    " run them on one machine with `secemb serve --replicas`. After moving data_dir, move the file data-id too"
)


async def check_stores(ledger: Ledger, objects: Objects, now: float) -> None:
    """Refuse to start on other stores than the other replicas: two shares of one round could be sent."""
    if not await _is_same(ledger, objects, _STORES, now):
        raise SettingsError(_DIFFERENT)


async def check_data_dir(ledger: Ledger, folder: Path, now: float) -> None:
    """Refuse to start if relay keys, which are files, are not those of the other replicas."""
    if not await _is_same(ledger, FolderObjects(folder), _FOLDER, now):
        raise SettingsError(_OTHER_FOLDER)


async def _is_same(ledger: Ledger, objects: Objects, name: str, now: float) -> bool:
    def read() -> bytes | None:
        objects.create(name, secrets.token_hex(16).encode())
        return objects.read(name)

    found = await asyncio.to_thread(read)
    return found is not None and await ledger.remember(name, found, now) == found


class Replica:
    """What one of several processes does to stay in step with the others."""

    def __init__(self, party: Party) -> None:
        self._party = party
        self._tidied = b""  # the last round that ended
        self._turns = 0

    async def run(self, *, every: float = _EVERY_SECONDS) -> None:
        """Stay in step until cancelled; a process without other replicas has nothing to do."""
        failing = Outage("cannot follow the other replicas", "following the other replicas again", level="error")
        while self._party.ledger.shared:
            await asyncio.sleep(every)
            try:
                await self.catch_up()
            except LedgerError:
                pass  # logged by the ledger itself
            except Exception as error:
                failing.failed(type(error).__name__, error)
            else:
                failing.worked()

    async def catch_up(self) -> None:
        """Learn what the others have done, and show the ledger that this process lives."""
        party = self._party
        await party.ledger.claim()
        await party.control.refresh()
        self._turns += 1
        if party.successions.link is None and self._turns % _SELDOM == 0:
            await party.successions.start()
        last = await party.ledger.last_round(party.task.task_id)
        if last is None or not last.ended or last.round_id == self._tidied:
            return
        published = await party.ledger.published_version(party.task.task_id)
        if published is not None and published.published_at is not None:
            party.metrics.model_version(published.version, published.published_at)
        await party.tidy()
        self._tidied = last.round_id
