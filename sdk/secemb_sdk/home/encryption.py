"""The file format of a record: one header line, then the record's bytes, plain or encrypted.

    secemb-home 1 <name> plain <SHA-256 of the rest>
    secemb-home 1 <name> sealed <check of the key>          then 12 bytes of nonce, and AES-GCM over the record

The first line is authenticated with the encrypted record, so that one record cannot be passed off as another.
"""

import hashlib
import hmac

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from secemb_sdk.errors import DamagedError, HomeKeyError, NewerHomeError
from secemb_shared.randomness import secure_bytes

MAGIC, FORMAT = "secemb-home", 1
_PLAIN, _ENCRYPTED = "plain", "sealed"  # as written in the files
_NONCE_BYTES = 12
_KEY_BYTES = (16, 32)
_LONGEST_LINE = 200


class FileCipher:
    """Encodes and decodes a home's files: encrypted with its key, or plain with a checksum if there is no key."""

    def __init__(self, key: bytes | None = None) -> None:
        if key is not None and len(key) not in _KEY_BYTES:
            raise HomeKeyError("the key of a home must be 16 or 32 random bytes")
        self._cipher = None if key is None else AESGCM(key)
        self._check = "" if key is None else _key_check(key)

    def encode(self, name: str, body: bytes) -> bytes:
        """Return the file of a record."""
        if self._cipher is None:
            return _line(name, _PLAIN, hashlib.sha256(body).hexdigest()) + body
        # Always from the system, even when a test supplies the device's random bytes: a nonce is never reused.
        line, nonce = _line(name, _ENCRYPTED, self._check), secure_bytes(_NONCE_BYTES)
        return line + nonce + self._cipher.encrypt(nonce, body, line)

    def decode(self, name: str, data: bytes) -> bytes:
        """Return the record in a file, or raise an error that describes what is wrong with the file."""
        line, newline, _ = data[:_LONGEST_LINE].partition(b"\n")
        body = data[len(line) + 1 :]
        words = line.decode("ascii", "replace").split(" ")
        if not newline or words[0] != MAGIC or len(words) < 2 or not words[1].isdigit():
            raise _damaged(name)
        if int(words[1]) > FORMAT:
            raise NewerHomeError("this home was written by a newer version of the SDK; update the app")
        if len(words) != 5 or words[2] != name or words[3] not in (_PLAIN, _ENCRYPTED):
            raise _damaged(name)
        if words[3] == _PLAIN:
            return self._check_plain(name, words[4], body)
        return self._decrypt(name, line + newline, words[4], body)

    def _check_plain(self, name: str, digest: str, body: bytes) -> bytes:
        if self._cipher is not None:
            raise HomeKeyError("this home is not encrypted; open it without a key, or use a key with a new home")
        if hashlib.sha256(body).hexdigest() != digest:
            raise _damaged(name)
        return body

    def _decrypt(self, name: str, line: bytes, check: str, body: bytes) -> bytes:
        if self._cipher is None:
            raise HomeKeyError("this home is encrypted; pass its key")
        if not hmac.compare_digest(check.encode(), self._check.encode()):
            raise HomeKeyError("wrong key: this home is encrypted with a different one")
        try:
            return self._cipher.decrypt(body[:_NONCE_BYTES], body[_NONCE_BYTES:], line)
        except (InvalidTag, ValueError):
            raise _damaged(name) from None


def _line(name: str, how: str, check: str) -> bytes:
    return f"{MAGIC} {FORMAT} {name} {how} {check}\n".encode("ascii")


def _key_check(key: bytes) -> str:
    """Return a value that distinguishes a wrong key from a corrupted file; it reveals nothing about a random key."""
    return hmac.new(key, b"secemb home key check", hashlib.sha256).hexdigest()[:16]


def _damaged(name: str) -> DamagedError:
    return DamagedError(f"the file {name!r} in the home is corrupted; restore the home, or remove it and start again")
