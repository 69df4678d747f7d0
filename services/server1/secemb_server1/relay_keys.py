"""The keys that devices encrypt boxes to: generated, announced and erased by server 1 only.

    pending    not valid yet, and not announced
    active boxes for it are decrypted; of several, the newest is announced
    expired    boxes for it are refused, and the private key is erased

One file, which is replaced as a whole, holds all keys. Commands can change it while the server runs.
"""

import json
import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

from secemb_party.errors import OutdatedRelayKeyError, SettingsError
from secemb_party.storage.files import locked, write_file
from secemb_shared.messages.relay_key import RelayKey

KEYS_FILE = "relay-keys.json"  # in the server's data directory
PENDING, ACTIVE, EXPIRED = "pending", "active", "expired"
LIFE_SECONDS = 90 * 86_400
OVERLAP_SECONDS = 3600  # how long boxes for the previous key are decrypted after a rotation
_RENEW_PARTS = 3  # when less than a third of a key's life is left, the server makes the next one


@dataclass(frozen=True, slots=True)
class HeldKey:
    """A key pair; the private key is kept until it expires."""

    announced: RelayKey
    private: X25519PrivateKey | None = field(repr=False)

    def state(self, now: float) -> str:
        """Return pending, active or expired."""
        if now < self.announced.not_before:
            return PENDING
        return ACTIVE if now < self.announced.not_after and self.private is not None else EXPIRED


class RelayKeys:
    """All keys of one server 1."""

    def __init__(self, path: Path, identity: Ed25519PrivateKey, task_id: bytes) -> None:
        self._path, self._identity, self._task_id = path, identity, task_id
        self._seen: tuple[int, int, int] | None = None
        self._keys: list[HeldKey] = []

    def __repr__(self) -> str:
        return f"RelayKeys({str(self._path)!r})"

    def held(self) -> list[HeldKey]:
        """Return all keys, oldest first, including expired ones."""
        self._reload()
        return list(self._keys)

    def expiry(self, now: float) -> float:
        """Return when the last key expires, or NaN without one."""
        self._reload()
        last = _last([key for key in self._keys if key.state(now) != EXPIRED])
        return math.nan if last is None else last.announced.not_after

    def announcement(self, *times: float, sure: bool = True) -> bytes:
        """Return the signed announcement of the newest active key; generate and erase keys when due.

        If several times are given, the clocks disagree and one of them is wrong, so keys are generated and erased only
        when they are due by all of them. Unless the clock is known to be right, only a first key is generated.
        """
        newest = self._lasting(times)
        if newest is None and not sure:
            newest = _last([key for key in self._keys if key.private is not None])
        if newest is None:
            newest = self._renew(times)
        if sure:
            self.erase_expired(min(times))
        return newest.announced.announce(self._identity, self._task_id)

    def erase_expired(self, now: float) -> None:
        """Erase the private keys of expired keys, which could decrypt recorded boxes."""
        self._reload()
        if any(key.private is not None and key.state(now) == EXPIRED for key in self._keys):
            with self._locked():
                self._write(self._keys, now)

    def private(self, key_id: bytes, *times: float) -> X25519PrivateKey:
        """Return the private key of a key that is active by at least one of the given clocks."""
        self._reload()
        for key in self._keys:
            active = any(key.state(now) == ACTIVE for now in times)
            if key.announced.key_id == key_id and active and key.private is not None:
                return key.private
        raise OutdatedRelayKeyError(
            "the box was encrypted to an unknown or outdated key; fetch the relay key and encrypt again"
        )

    def rotate(self, now: float, *, lead: int = 0, overlap: int = OVERLAP_SECONDS, life: int = LIFE_SECONDS) -> HeldKey:
        """Generate the next key; older keys are accepted until `overlap` seconds after it becomes active."""
        with self._locked():
            begins = int(now) + lead
            before = [_ended(key, begins + overlap) for key in self._keys]
            made = _new_key(begins, begins + life)
            self._write([*before, made], now)
            return made

    def _lasting(self, times: Sequence[float]) -> HeldKey | None:
        """Return the newest active key, by the first clock that has one, if the next need not be made yet."""
        return next((newest for now in times if (newest := self._newest(now)) is not None and self._lasts(now)), None)

    def _newest(self, now: float) -> HeldKey | None:
        self._reload()
        active = [key for key in self._keys if key.state(now) == ACTIVE]
        return _last(active)

    def _lasts(self, now: float) -> bool:
        """Return whether the last key, active or pending, has enough of its lifetime left."""
        last = _last([key for key in self._keys if key.state(now) != EXPIRED])
        return last is not None and last.announced.has_left(now, _RENEW_PARTS)

    def _renew(self, times: Sequence[float]) -> HeldKey:
        """Generate the next key in addition to the old ones, unless another process has just done so."""
        now = times[0]
        with self._locked():
            if (newest := self._lasting(times)) is not None:
                return newest
            made = _new_key(int(now), int(now) + LIFE_SECONDS)
            self._write([*self._keys, made], now)
            return made

    @contextmanager
    def _locked(self) -> Iterator[None]:
        """Hold the lock on the file."""
        self._path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        with locked(self._path):
            self._reload()
            yield

    def _reload(self) -> None:
        try:
            found = self._path.stat()
        except FileNotFoundError:
            self._keys, self._seen = [], None
            return
        seen = (found.st_mtime_ns, found.st_size, found.st_ino)
        if seen != self._seen:
            self._keys, self._seen = _read(self._path), seen

    def _write(self, keys: list[HeldKey], now: float) -> None:
        stored = json.dumps([_record(key, now) for key in keys], indent=1)
        write_file(self._path, stored.encode("ascii"), mode=0o600)
        self._reload()


def _new_key(not_before: int, not_after: int) -> HeldKey:
    private = X25519PrivateKey.generate()
    public = private.public_key().public_bytes_raw()
    return HeldKey(RelayKey(public=public, not_before=not_before, not_after=not_after), private)


def _last(keys: list[HeldKey]) -> HeldKey | None:
    """Return the key that becomes valid last; of those made in the same second, the last one."""
    return max(reversed(keys), key=lambda key: key.announced.not_before, default=None)


def _ended(key: HeldKey, end: int) -> HeldKey:
    known = key.announced
    times = {"not_before": min(known.not_before, end), "not_after": min(known.not_after, end)}
    return HeldKey(RelayKey(public=known.public, **times), key.private)


def _record(key: HeldKey, now: float) -> dict[str, Any]:
    """Return the stored form of a key, which includes the private key only until it expires."""
    keeps = key.private is not None and key.state(now) != EXPIRED
    return {
        "public": key.announced.public.hex(),
        "not_before": key.announced.not_before,
        "not_after": key.announced.not_after,
        "private": key.private.private_bytes_raw().hex() if keeps and key.private is not None else None,
    }


def _read(path: Path) -> list[HeldKey]:
    try:
        return [_held(one) for one in json.loads(path.read_text("ascii"))]
    except (ValueError, KeyError, TypeError):
        raise SettingsError(f"{path} is corrupted; move it away, and the server will generate a new key") from None


def _held(record: dict[str, Any]) -> HeldKey:
    private = record["private"]
    announced = RelayKey(
        public=bytes.fromhex(record["public"]),
        not_before=int(record["not_before"]),
        not_after=int(record["not_after"]),
    )
    return HeldKey(announced, None if private is None else X25519PrivateKey.from_private_bytes(bytes.fromhex(private)))
