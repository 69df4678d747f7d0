"""Domain separation: what is derived in one place is of no use in any other."""

import hashlib
from dataclasses import replace
from enum import Enum
from typing import cast

import numpy as np
import pytest
from tests.unit.sessions import random_blocks, rng_of

from secemb_shared.dpf import SessionKeys, expand_roots, stream
from secemb_shared.dpf._portable import convert
from secemb_shared.errors import SpecError
from secemb_shared.labels import NO_SESSION, Label, Purpose

LABEL = Label(bytes(range(32)), 5, bytes(range(16)))
SECRET = b"sixteen byte key"


def changed(data: bytes, at: int) -> bytes:
    return data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :]


def test_every_purpose_has_its_own_name() -> None:
    names = [purpose.value for purpose in Purpose]
    assert len(set(names)) == len(Purpose) == len(Purpose.__members__)
    assert all(0 < len(name) < 256 for name in names)


def test_no_two_purposes_share_a_key() -> None:
    for secret in (b"", SECRET):
        assert len({LABEL.key(purpose, secret) for purpose in Purpose}) == len(Purpose)


def test_any_change_of_the_place_changes_the_derivation() -> None:
    labels = [
        LABEL,
        *(replace(LABEL, task_id=changed(LABEL.task_id, at)) for at in range(32)),
        *(replace(LABEL, session_id=changed(LABEL.session_id, at)) for at in range(16)),
        *(replace(LABEL, number=LABEL.number ^ 1 << bit) for bit in range(64)),
        replace(LABEL, session_id=NO_SESSION),
    ]
    for purpose in Purpose:
        for secret in (b"", SECRET):
            assert len({label.derive(purpose, secret) for label in labels}) == len(labels)


def test_any_change_of_the_secret_changes_the_derivation() -> None:
    secrets = [b"", bytes(16), SECRET, *(changed(SECRET, at) for at in range(16))]
    assert len({LABEL.key(Purpose.ROOTS, secret) for secret in secrets}) == len(secrets)


def test_a_purpose_cannot_be_continued_by_a_secret() -> None:
    """The length stands before the name: "stream/" with the secret "dense" is not "stream/dense"."""

    class Prefix(Enum):
        STREAM = "stream/"
        WHOLE = "stream/dense"

    continued = LABEL.derive(cast(Purpose, Prefix.STREAM), b"dense")
    assert continued != LABEL.derive(cast(Purpose, Prefix.WHOLE))


def test_the_same_place_and_purpose_derive_the_same() -> None:
    again = Label(LABEL.task_id, LABEL.number, LABEL.session_id)
    assert LABEL.derive(Purpose.CONVERT, SECRET) == again.derive(Purpose.CONVERT, SECRET)
    assert LABEL.key(Purpose.CONVERT) == LABEL.derive(Purpose.CONVERT)[:16]


def test_a_derivation_is_the_hash_of_place_purpose_and_secret() -> None:
    """Byte by byte as the specification has it; the length keeps name and secret apart."""
    place = b"secemb/2" + bytes(range(32)) + (5).to_bytes(8, "little") + bytes(range(16))
    expected = hashlib.sha256(place + b"\x0cstream/dense" + SECRET).digest()
    assert LABEL.derive(Purpose.DENSE_SHARE, SECRET) == expected


def test_two_purposes_never_share_a_pad() -> None:
    """From the same leaves, no block that one purpose's key makes is made by another's."""
    nodes = random_blocks(rng_of(1), 20)
    pads = [convert(LABEL.key(purpose), nodes, 40, np.dtype(np.uint32)) for purpose in Purpose]
    blocks = np.concatenate([pad.reshape(-1, 4) for pad in pads])
    assert len({block.tobytes() for block in blocks}) == len(Purpose) * 20 * 10


def test_two_streams_of_one_seed_share_no_block() -> None:
    purposes = (Purpose.ROOTS, Purpose.DENSE_SHARE, Purpose.SUM_SHARE)
    blocks = np.concatenate([stream(LABEL.key(purpose, SECRET), 50) for purpose in purposes])
    assert np.unique(blocks, axis=0).shape == (150, 16)


def test_two_sessions_share_neither_a_key_nor_a_root() -> None:
    others = [LABEL, replace(LABEL, session_id=bytes(16)), replace(LABEL, number=6), replace(LABEL, task_id=bytes(32))]
    keys = [key for label in others for key in (SessionKeys.of(label).block())]
    assert len({key.tobytes() for key in keys}) == 3 * len(others)
    roots = np.concatenate([expand_roots(label, SECRET, 9) for label in others])
    assert np.unique(roots, axis=0).shape == (9 * len(others), 16)


@pytest.mark.parametrize(
    ("task_id", "number", "session_id"),
    [
        (bytes(31), 0, bytes(16)),
        (bytes(33), 0, bytes(16)),
        (b"", 0, bytes(16)),
        (bytes(32), 0, bytes(15)),
        (bytes(32), 0, bytes(17)),
        (bytes(32), 0, b""),
        (bytes(32), -1, bytes(16)),
        (bytes(32), 2**64, bytes(16)),
    ],
)
def test_a_label_of_another_size_is_refused(task_id: bytes, number: int, session_id: bytes) -> None:
    with pytest.raises(SpecError):
        Label(task_id, number, session_id)
