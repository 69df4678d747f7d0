"""Shares of sums as files: stored before they are sent, and the same bytes ever after."""

import hashlib
import os
from pathlib import Path

from secemb_shared.errors import SecEmbError


class DamagedShareError(SecEmbError):
    """A stored share does not have the digest that the ledger has for it."""


class ShareStore:
    """One file for each round that this server has shared."""

    def __init__(self, directory: Path) -> None:
        self._folder = directory / "shares"

    def save(self, round_id: bytes, data: bytes) -> bytes:
        """Store a share durably and return its digest."""
        self._folder.mkdir(parents=True, exist_ok=True)
        path = self._path(round_id)
        temporary = path.with_suffix(".part")
        with temporary.open("wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
        _sync(self._folder)
        return hashlib.sha256(data).digest()

    def has(self, round_id: bytes) -> bool:
        """Return whether the share of a round is still kept."""
        return self._path(round_id).exists()

    def load(self, round_id: bytes, digest: bytes) -> bytes:
        """Return the share exactly as it was stored."""
        path = self._path(round_id)
        if not path.exists():
            raise DamagedShareError(f"{path.name} is missing; restore it from a backup of the data folder")
        data = path.read_bytes()
        if hashlib.sha256(data).digest() != digest:
            raise DamagedShareError(f"{path.name} was altered; restore it from a backup of the data folder")
        return data

    def prune(self, keep: set[bytes]) -> None:
        """Remove the shares of all rounds but these."""
        names = {self._path(round_id).name for round_id in keep}
        for path in self._folder.glob("*"):
            if path.name not in names:
                path.unlink(missing_ok=True)

    def _path(self, round_id: bytes) -> Path:
        return self._folder / f"{round_id.hex()}.share"


def _sync(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
