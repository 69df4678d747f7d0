"""Shares of sums as files: stored before they are sent, and never changed."""

import hashlib
from pathlib import Path

from secemb_party.errors import DamagedShareError
from secemb_party.storage import files
from secemb_party.storage.blob import Blob, FileBlob, sha256_of

_SUFFIX = ".share"
_OTHER_LIST = "the stored share is for a different list of sessions, so the ledger is older than the share"


class ShareFiles:
    """One file per round that this server has shared."""

    def __init__(self, directory: Path) -> None:
        self._folder = directory / "shares"

    def save(self, round_id: bytes, list_digest: bytes, data: bytes | memoryview) -> bytes | None:
        """Store the share of a list of sessions durably and return its digest; an existing one is never overwritten.

        If another process has stored a share of this list first, its share counts, and this returns None.
        """
        files.make_folder(self._folder)
        files.remove_unfinished(self._folder)
        path = self._folder / f"{round_id.hex()}.{list_digest.hex()}{_SUFFIX}"
        found = self._find(round_id)
        if found is not None and found != path:
            raise DamagedShareError(_OTHER_LIST)
        if not files.write_new(path, data, mode=files.PRIVATE):
            return None
        return hashlib.sha256(data).digest()

    def has(self, round_id: bytes) -> bool:
        """Return whether the share of a round is still kept."""
        return self._find(round_id) is not None

    def find(self, round_id: bytes, list_digest: bytes) -> Blob | None:
        """Return a share that was stored but, because of a crash, never recorded, so that its noise is not drawn again.

        If the share is for a different list of sessions, the server must stop. The share may have been sent before the
        ledger was restored from a backup, and two sums over different lists reveal their difference.
        """
        path = self._find(round_id)
        if path is None:
            return None
        if path.name != f"{round_id.hex()}.{list_digest.hex()}{_SUFFIX}":
            raise DamagedShareError(_OTHER_LIST)
        return FileBlob.open(path)

    def load(self, round_id: bytes, digest: bytes) -> Blob:
        """Return the share exactly as it was stored."""
        path = self._find(round_id)
        if path is None:
            raise DamagedShareError("a share is missing; restore data/shares from a backup of data_dir")
        share = FileBlob.open(path)
        if sha256_of(share) != digest:
            raise DamagedShareError(f"{path.name} was altered; restore it from a backup of the data folder")
        return share

    def rounds(self) -> list[bytes]:
        """Return the rounds whose shares are kept."""
        return sorted(bytes.fromhex(path.name.split(".")[0]) for path in self._folder.glob(f"[0-9a-f]*{_SUFFIX}"))

    def prune(self, keep: set[bytes]) -> None:
        """Remove the shares of all rounds but these."""
        names = {round_id.hex() for round_id in keep}
        for path in self._folder.glob(f"*{_SUFFIX}"):
            if path.name.split(".")[0] not in names:
                path.unlink(missing_ok=True)

    def _find(self, round_id: bytes) -> Path | None:
        return next(self._folder.glob(f"{round_id.hex()}.*{_SUFFIX}"), None)
