"""SecAgg (Bonawitz et al. 2017) with one server, against an honest but curious one: masks that cancel, and dropouts.

    1 keys      each user announces two X25519 keys: one to encrypt with, one for masks
    2 shares    each user sends Shamir shares of its mask key and of its own mask's seed, encrypted for the others
    3 vector    x + own mask + masks with those before, − masks with those behind it
    4 unmask    the others open a survivor's own seed, or the mask key of a user who dropped out, never both

Vectors are in Z_2^32. A user is a number from 1; messages are bytes, so that their lengths are the bytes sent.
"""

import secrets
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial
from time import process_time
from typing import TypeVar

import numpy as np
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from secemb_lab.paper.protocols import shamir
from secemb_shared.dpf import RingArray, default_backend
from secemb_tools.errors import OperationError

KEY_BYTES, _NONCE = 32, bytes(12)  # each key encrypts one message
_LISTED = 2  # bytes of a user in the list of survivors
_OPENED = 1 + 2 + shamir.SHARE_BYTES  # kind, user and share


Made = TypeVar("Made")


def agree(own: X25519PrivateKey, other: bytes, purpose: bytes) -> bytes:
    """Return the 16-byte key that two users share for one purpose."""
    secret = own.exchange(X25519PublicKey.from_public_bytes(other))
    return HKDF(algorithm=SHA256(), length=16, salt=None, info=b"secemb-lab/secagg/" + purpose).derive(secret)


def add_mask(key: bytes, vector: RingArray, *, negative: bool) -> None:
    """Add the pseudo-random mask of a key to a vector in place, or subtract it."""
    default_backend().add_stream(key, vector, negative=negative)


def _seed_key(seed: bytes) -> bytes:
    return HKDF(algorithm=SHA256(), length=16, salt=None, info=b"secemb-lab/secagg/own mask").derive(seed)


class Client:
    """One user through the four steps."""

    def __init__(self, number: int, *, users: int, threshold: int) -> None:
        self.number, self._users, self._threshold = number, users, threshold
        self._cipher_key, self._mask_key = X25519PrivateKey.generate(), X25519PrivateKey.generate()
        self._seed = secrets.token_bytes(32)
        self._keys: dict[int, bytes] = {}
        self._shares: dict[int, bytes] = {}
        self._opened = False

    def announce(self) -> bytes:
        """Step 1: return both public keys."""
        return b"".join(key.public_key().public_bytes_raw() for key in (self._cipher_key, self._mask_key))

    def share(self, keys: Mapping[int, bytes]) -> dict[int, bytes]:
        """Step 2: return the encrypted shares for each other user."""
        self._keys = dict(keys)
        secret = self._mask_key.private_bytes_raw()
        parts = [shamir.split(one, shares=self._users, threshold=self._threshold) for one in (secret, self._seed)]
        plain = {user: parts[0][user - 1] + parts[1][user - 1] for user in keys}
        self._shares[self.number] = plain[self.number]
        return {
            user: AESGCM(self._between(user, self.number)).encrypt(_NONCE, text, None)
            for user, text in plain.items()
            if user != self.number
        }

    def mask(self, shares: Mapping[int, bytes], vector: RingArray) -> bytes:
        """Step 3: keep the others' shares, and return the masked vector."""
        for user, text in shares.items():
            self._shares[user] = AESGCM(self._between(self.number, user)).decrypt(_NONCE, text, None)
        masked = vector.copy()
        add_mask(_seed_key(self._seed), masked, negative=False)
        for user in shares:
            key = agree(self._mask_key, self._keys[user][KEY_BYTES:], b"mask")
            add_mask(key, masked, negative=user > self.number)
        return masked.tobytes()

    def unmask(self, survivors: Iterable[int], dropped: Iterable[int]) -> bytes:
        """Step 4: open one share of each user, of the own seed or of the mask key; once, and never both of one."""
        survivors, dropped = set(survivors), set(dropped)
        if self._opened or survivors & dropped:
            raise ValueError("both secrets of a user would show its vector; a user opens once")
        self._opened = True
        size = shamir.SHARE_BYTES
        return b"".join(
            bytes([user in survivors]) + user.to_bytes(2) + (share[size:] if user in survivors else share[:size])
            for user, share in sorted(self._shares.items())
            if user in survivors | dropped
        )

    def _between(self, receiver: int, sender: int) -> bytes:
        other = receiver if sender == self.number else sender
        return agree(self._cipher_key, self._keys[other][:KEY_BYTES], b"shares to %d" % receiver)


@dataclass(slots=True)
class Traffic:
    """The bytes that one party sends and receives, and its seconds."""

    sent: int = 0
    received: int = 0
    seconds: float = 0.0


@dataclass(slots=True)
class SecAggRound:
    """The result of a round: the sum over the survivors, its costs, and the server's view."""

    total: RingArray
    clients: dict[int, Traffic]
    server: Traffic
    masked: dict[int, RingArray]  # the server's view of each user's vector
    rounds: int = 4
    survivors: list[int] = field(default_factory=list)


def run(
    vectors: Mapping[int, RingArray], *, threshold: int, silent: Iterable[int] = (), gone: Iterable[int] = ()
) -> SecAggRound:
    """Run a round: `silent` users drop out before they send their vector, `gone` ones right after it."""
    users = sorted(vectors)
    clients = {user: Client(user, users=max(users), threshold=threshold) for user in users}
    meters = {user: Traffic() for user in users}
    keys = {user: _timed(meters[user], clients[user].announce) for user in users}
    directory = b"".join(keys.values())
    boxes = {user: _timed(meters[user], partial(clients[user].share, keys)) for user in users}
    senders = [user for user in users if user not in set(silent)]
    masked = {}
    for user in senders:
        inbox = {other: boxes[other][user] for other in users if other != user}
        masked[user] = _timed(meters[user], partial(clients[user].mask, inbox, vectors[user]))
    helpers = [user for user in senders if user not in set(gone)]
    missing = [user for user in users if user not in masked]
    opened = {user: _timed(meters[user], partial(clients[user].unmask, masked, missing)) for user in helpers}
    for user in users:
        sent = [keys[user], *boxes[user].values(), masked.get(user, b""), opened.get(user, b"")]
        meters[user].sent = sum(map(len, sent))
        meters[user].received = (
            len(directory) + _LISTED * len(users) + sum(len(boxes[other][user]) for other in users if other != user)
        )
    begin = process_time()
    views = {user: np.frombuffer(data, np.uint32) for user, data in masked.items()}
    total = _sum(views, keys, opened, missing, threshold)
    server = Traffic(
        sent=sum(one.received for one in meters.values()),
        received=sum(one.sent for one in meters.values()),
        seconds=process_time() - begin,
    )
    return SecAggRound(total, meters, server, views, survivors=senders)


def _sum(
    views: Mapping[int, RingArray],
    keys: Mapping[int, bytes],
    opened: Mapping[int, bytes],
    missing: Iterable[int],
    threshold: int,
) -> RingArray:
    """Return the server's sum: the vectors without the survivors' own masks and without masks that do not cancel."""
    if len(opened) < threshold:
        raise OperationError(f"{len(opened)} users are left, and {threshold} are needed")
    total: RingArray = np.add.reduce(list(views.values()), axis=0, dtype=np.uint32)
    secrets_of = _combined(opened, threshold)
    for user in views:
        add_mask(_seed_key(secrets_of[user]), total, negative=True)
    for user in missing:
        own = X25519PrivateKey.from_private_bytes(secrets_of[user])
        for other in views:
            key = agree(own, keys[other][KEY_BYTES:], b"mask")
            add_mask(key, total, negative=user < other)
    return total


def _combined(opened: Mapping[int, bytes], threshold: int) -> dict[int, bytes]:
    """Return the secret of each user from the first sufficient shares."""
    shares: dict[int, dict[int, bytes]] = {}
    for helper, data in list(opened.items())[:threshold]:
        for place in range(0, len(data), _OPENED):
            user = int.from_bytes(data[place + 1 : place + 3])
            shares.setdefault(user, {})[helper] = data[place + 3 : place + _OPENED]
    return {user: shamir.combine(some) for user, some in shares.items()}


def _timed(meter: Traffic, work: Callable[[], Made]) -> Made:
    begin = process_time()
    done = work()
    meter.seconds += process_time() - begin
    return done
