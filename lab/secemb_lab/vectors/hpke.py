"""HPKE with a chosen ephemeral key, for vectors alone: RFC 9180, base mode, X25519, HKDF-SHA256, AES-128-GCM.

The product encrypts with `cryptography`, which draws the ephemeral key itself. Vectors need the same bytes each time.
"""

import hashlib
import hmac

from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDFExpand

_KEM = b"KEM" + bytes([0x00, 0x20])
_HPKE = b"HPKE" + bytes([0x00, 0x20, 0x00, 0x01, 0x00, 0x01])
_BASE_MODE = b"\x00"


def encrypt_with(ephemeral: bytes, public: bytes, info: bytes, content: bytes) -> bytes:
    """Return the ephemeral public key and the encrypted content."""
    private = X25519PrivateKey.from_private_bytes(ephemeral)
    shown = private.public_key().public_bytes_raw()
    agreed = private.exchange(X25519PublicKey.from_public_bytes(public))
    shared = _expand(_KEM, _extract(_KEM, b"", b"eae_prk", agreed), b"shared_secret", shown + public, 32)
    context = _BASE_MODE + _extract(_HPKE, b"", b"psk_id_hash", b"") + _extract(_HPKE, b"", b"info_hash", info)
    secret = _extract(_HPKE, shared, b"secret", b"")
    key, nonce = _expand(_HPKE, secret, b"key", context, 16), _expand(_HPKE, secret, b"base_nonce", context, 12)
    return shown + AESGCM(key).encrypt(nonce, content, b"")


def _extract(suite: bytes, salt: bytes, label: bytes, secret: bytes) -> bytes:
    return hmac.new(salt or bytes(32), b"HPKE-v1" + suite + label + secret, hashlib.sha256).digest()


def _expand(suite: bytes, key: bytes, label: bytes, context: bytes, length: int) -> bytes:
    info = length.to_bytes(2, "big") + b"HPKE-v1" + suite + label + context
    return HKDFExpand(SHA256(), length, info).derive(key)
