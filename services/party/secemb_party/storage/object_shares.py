"""Shares of sums as objects: `shares/<round>.list` names the list of sessions, `shares/<round>.share` is its share.

Both are written once. The first writer wins, whichever process it is: all others find its list and its share.
"""

import hashlib

from secemb_party.errors import DamagedShareError
from secemb_party.storage.blob import Blob, sha256_of
from secemb_party.storage.objects import ObjectBlob, Objects

_FOLDER = "shares"
_LIST, _SHARE = "list", "share"
_OTHER_LIST = "the stored share is for a different list of sessions, so the ledger is older than the share"


class ObjectShares:
    """One share per round."""

    def __init__(self, objects: Objects) -> None:
        self._objects = objects

    def save(self, round_id: bytes, list_digest: bytes, data: bytes | memoryview) -> bytes | None:
        """Store the share of a list of sessions and return its digest; None if another share of it was stored first."""
        listed = _name(round_id, _LIST)
        if not self._objects.create(listed, list_digest) and self._objects.read(listed) != list_digest:
            raise DamagedShareError(_OTHER_LIST)
        digest = hashlib.sha256(data).digest()
        if self._objects.create(_name(round_id, _SHARE), data):
            return digest
        stored = self._blob(round_id)
        return digest if stored is not None and sha256_of(stored) == digest else None  # equal if an answer was lost

    def has(self, round_id: bytes) -> bool:
        """Return whether the share of a round is still kept."""
        return self._objects.stamp(_name(round_id, _SHARE)) is not None

    def find(self, round_id: bytes, list_digest: bytes) -> Blob | None:
        """Return the share of a list of sessions, or None; raise if it is the share of another list."""
        listed = self._objects.read(_name(round_id, _LIST))
        if listed is None:
            return None
        if listed != list_digest:
            raise DamagedShareError(_OTHER_LIST)
        return self._blob(round_id)

    def load(self, round_id: bytes, digest: bytes) -> Blob:
        """Return the share exactly as it was stored."""
        share = self._blob(round_id)
        if share is None:
            raise DamagedShareError("a share is missing; restore it from a backup of the object store")
        if sha256_of(share) != digest:
            raise DamagedShareError("a share was altered; restore it from a backup of the object store")
        return share

    def rounds(self) -> list[bytes]:
        """Return the rounds whose shares are kept."""
        found = (name.rpartition("/")[2].partition(".") for name in self._objects.names(_FOLDER))
        return sorted(bytes.fromhex(round_id) for round_id, _, kind in found if kind == _SHARE)

    def prune(self, keep: set[bytes]) -> None:
        """Remove the shares of all rounds but these. The list goes last: without it, a share could not be refused."""
        old = [one for one in self.rounds() if one not in keep]
        self._objects.remove([_name(one, _SHARE) for one in old])
        self._objects.remove([_name(one, _LIST) for one in old])

    def _blob(self, round_id: bytes) -> Blob | None:
        name = _name(round_id, _SHARE)
        size = self._objects.size(name)
        return None if size is None else ObjectBlob(self._objects, name, size)


def _name(round_id: bytes, kind: str) -> str:
    return f"{_FOLDER}/{round_id.hex()}.{kind}"
