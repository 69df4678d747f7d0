"""The key that devices encrypt boxes to, as announced by server 1 and signed by the identity named in the task.

    public key    32   X25519
    not before     8   seconds since 1970, little-endian
    not after      8
    signature     64   Ed25519, over "secemb/1 relay key" ‖ task_id ‖ the 48 bytes above

Because of the signature, no relay can change it. Messages refer to the key by the first 8 bytes of its SHA-256.
"""

import hashlib
from dataclasses import dataclass

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PublicKey

from secemb_shared.errors import LengthError, RelayKeyError
from secemb_shared.messages.spec import TaskSpec

DOMAIN = b"secemb/1 relay key"
KEY_ID_BYTES = 8
RELAY_KEY_BYTES = 112
_SIGNED = 48


@dataclass(frozen=True, slots=True, kw_only=True)
class RelayKey:
    """A public key of server 1, and the period in which boxes for it are accepted."""

    public: bytes
    not_before: int
    not_after: int

    @property
    def key_id(self) -> bytes:
        """Return the key id used in messages."""
        return key_id_of(self.public)

    @property
    def key(self) -> X25519PublicKey:
        """Return the key to encrypt to."""
        return X25519PublicKey.from_public_bytes(self.public)

    def is_current(self, now: float, *, slack: float = 0.0) -> bool:
        """Return whether the key is valid now, by a clock that may be wrong by this many seconds."""
        return self.not_before - slack <= now < self.not_after + slack

    def has_left(self, now: float, parts: int) -> bool:
        """Return whether at least one of this many equal parts of its lifetime is left."""
        return parts * (self.not_after - now) >= self.not_after - self.not_before

    def announce(self, identity: Ed25519PrivateKey, task_id: bytes) -> bytes:
        """Return the announcement, signed for one task."""
        fields = self.public + self.not_before.to_bytes(8, "little") + self.not_after.to_bytes(8, "little")
        return fields + identity.sign(_statement(task_id, fields))

    @classmethod
    def read(cls, task: TaskSpec, data: bytes) -> "RelayKey":
        """Return the key in an announcement, or raise unless the task's server 1 has signed it for this task."""
        if len(data) != RELAY_KEY_BYTES:
            raise LengthError(f"a relay key announcement must be exactly {RELAY_KEY_BYTES} bytes")
        fields = data[:_SIGNED]
        try:
            identity = Ed25519PublicKey.from_public_bytes(bytes.fromhex(task.relay_key))
            identity.verify(data[_SIGNED:], _statement(task.task_id, fields))
        except (InvalidSignature, ValueError):
            raise RelayKeyError("the relay key is not signed by the server 1 named in the task") from None
        times = (int.from_bytes(fields[at : at + 8], "little") for at in (32, 40))
        return cls(public=fields[:32], not_before=next(times), not_after=next(times))


def key_id_of(public: bytes) -> bytes:
    """Return the key id of a public key."""
    return hashlib.sha256(public).digest()[:KEY_ID_BYTES]


def _statement(task_id: bytes, fields: bytes) -> bytes:
    return DOMAIN + task_id + fields
