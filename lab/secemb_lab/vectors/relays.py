"""Vectors of the relayed transport: announced keys, boxes, relayed messages, masks and marks."""

import hashlib
import hmac
from dataclasses import dataclass

import numpy as np
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDFExpand

from secemb_lab.party_round import PartyRound
from secemb_lab.vectors.document import Json, Source
from secemb_lab.vectors.specifications import binned, direct
from secemb_sdk.round.session import DeviceSession
from secemb_shared import holds
from secemb_shared.dpf._portable import Portable
from secemb_shared.labels import Label
from secemb_shared.messages import Kind, RoundSpec, TaskSpec, decode_answer
from secemb_shared.messages.canonical import digest
from secemb_shared.messages.codec import ENVELOPE_BYTES, envelope
from secemb_shared.messages.relay_key import RelayKey
from secemb_shared.messages.relayed import box_content, box_info, encode_relayed_answer, step_of
from secemb_shared.messages.spec import EVALUATE, TRAIN


@dataclass(frozen=True, slots=True, repr=False)
class Server1:
    """The keys of a made-up server 1."""

    identity: bytes
    private: bytes
    not_before: int = 1_700_000_000
    not_after: int = 1_707_776_000

    @classmethod
    def draw(cls, source: Source) -> "Server1":
        """Return another one."""
        return cls(source(32), source(32))

    @property
    def relay_key(self) -> str:
        """Return the member of a task that names this server."""
        key = Ed25519PrivateKey.from_private_bytes(self.identity)
        return key.public_key().public_bytes_raw().hex()

    @property
    def key(self) -> RelayKey:
        """Return the key that boxes are encrypted to."""
        public = X25519PrivateKey.from_private_bytes(self.private).public_key().public_bytes_raw()
        return RelayKey(public=public, not_before=self.not_before, not_after=self.not_after)

    def announce(self, task: TaskSpec) -> bytes:
        """Return the announcement of the key."""
        return self.key.announce(Ed25519PrivateKey.from_private_bytes(self.identity), task.task_id)

    def encrypt(self, place: Label, step: Kind, content: bytes, ephemeral: bytes) -> bytes:
        """Return key id and box."""
        return self.key.key_id + encrypt_with(ephemeral, self.key.public, box_info(place, step), content)


def relay() -> Json:
    """Sessions of each kind of round that go through server 0."""
    source = Source("relay")
    servers = [Server1.draw(source), Server1.draw(source)]
    small: dict[str, int | str] = {"items": 9, "capacity": 6, "tables": 2, "bins": 4, "row_width": 2}
    tasks = [binned(name="relayed", relay_key=servers[0].relay_key, **small), direct(relay_key=servers[1].relay_key)]
    cases = [(tasks[0], servers[0], TRAIN), (tasks[1], servers[1], TRAIN), (tasks[1], servers[1], EVALUATE)]
    return {
        "keys": [_announced(task, server) for task, server in zip(tasks, servers, strict=True)],
        "sessions": [_Session(task, server, kind, source).play() for task, server, kind in cases],
    }


def _announced(task: TaskSpec, server: Server1) -> Json:
    return {
        "task": task.encode().decode("ascii"),
        "identity": server.identity.hex(),
        "private": server.private.hex(),
        "public": server.key.public.hex(),
        "not_before": server.not_before,
        "not_after": server.not_after,
        "key_id": server.key.key_id.hex(),
        "announcement": server.announce(task).hex(),
    }


class _Session:
    """One session whose messages travel through server 0."""

    def __init__(self, task: TaskSpec, server: Server1, kind: str, source: Source) -> None:
        self.server, self.source = server, source
        self.round = RoundSpec(task=task, number=5, model_version=4, model_digest=source(32), kind=kind)
        bits = np.frombuffer(source(4 * task.items * task.row_width), dtype="<f4").astype(np.float32)
        table = bits.reshape(task.items, task.row_width)
        self.device = DeviceSession(self.round, np.array([0, 2]), random_bytes=source, backend=Portable())
        self.place = self.round.label(self.device.session_id)
        self.parties = [PartyRound(self.round, party, table, backend=Portable()) for party in (0, 1)]

    def play(self) -> Json:
        """Return every message of the session, made from those of the direct transport."""
        keys, session_id = self.device.keys, self.device.session_id
        dense, updates = self.source(4 * self.round.task.dense_size), self.device.write_nothing()
        hold, marks = self.device.holds[1], self.device.marks
        return {
            "task": self.round.task.encode().decode("ascii"),
            "round": self.round.encode().decode("ascii"),
            "session_id": session_id.hex(),
            "private": self.server.private.hex(),
            "keys": [one.hex() for one in keys],
            "upload": [one.hex() for one in updates],
            "holds": [one.hex() for one in self.device.holds],
            "proofs": [one.hex() for one in marks.macs],
            "relayed_keys": self._relayed(Kind.RELAYED_KEYS, keys, b""),
            "relayed_upload": self._relayed(Kind.RELAYED_UPLOAD, updates, marks.macs[1]),
            "receipts": [holds.receipt_of(self.place, hold, hold).hex(), marks.receipt.hex()],
            **self._answered(hold, dense),
        }

    def _relayed(self, kind: Kind, messages: tuple[bytes, bytes], mac: bytes) -> Json:
        step = step_of(self.round, kind)
        content, ephemeral = box_content(self.round, step, messages[1], mac=mac), self.source(32)
        head = envelope(self.round, self.device.session_id, kind, 0)
        boxes = self.server.encrypt(self.place, step, content, ephemeral)
        return {
            "info": box_info(self.place, step).hex(),
            "ephemeral": ephemeral.hex(),
            "content": content.hex(),
            "message": (head + messages[0][ENVELOPE_BYTES:] + boxes).hex(),
        }

    def _answered(self, hold: bytes, dense: bytes) -> Json:
        session_id, keys = self.device.session_id, self.device.keys
        answers = [party.keys(session_id, message) for party, message in zip(self.parties, keys, strict=True)]
        words = decode_answer(self.round, session_id, 1, answers[1])
        masked = holds.mask(self.place, hold, words, Portable()).astype("<u4").tobytes()
        mark = holds.dense_mark(self.place, hold, digest(dense))
        other = masked + holds.receipt_of(self.place, hold, hold) + mark
        return {
            "answers": [one.hex() for one in answers],
            "masked": masked.hex(),
            "dense": dense.hex(),
            "dense_mark": mark.hex(),
            "relayed_answer": encode_relayed_answer(self.round, session_id, answers[0], other).hex(),
        }


# HPKE with a chosen ephemeral key, for vectors only: RFC 9180, base mode, X25519, HKDF-SHA256, AES-128-GCM. The product
# encrypts with `cryptography`, which draws the ephemeral key itself; vectors need the same bytes each time.
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
