"""Relayed messages: what server 0 takes apart and server 1 builds is what the device would have sent directly."""

from dataclasses import replace

import numpy as np
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.sessions import make_round, make_task

from secemb_sdk.round.session import DeviceSession, Messages
from secemb_shared.errors import BoxError, LengthError, OtherRoundError, RelayKeyError, SecEmbError
from secemb_shared.holds import dense_mark, mask, receipt_of, upload_mac
from secemb_shared.labels import Label
from secemb_shared.messages import Kind, RoundSpec, Sizes
from secemb_shared.messages.relay_key import RelayKey
from secemb_shared.messages.relayed import (
    box_content,
    box_info,
    encode_relayed,
    encrypt_box,
    open_box,
    open_content,
    rebuild,
    relayed_bytes,
    split_relayed,
    step_of,
)
from secemb_shared.messages.spec import EVALUATE, SURVEY, TRAIN

PRIVATE = X25519PrivateKey.from_private_bytes(bytes(range(32)))
KEY = RelayKey(public=PRIVATE.public_key().public_bytes_raw(), not_before=0, not_after=1)
IDENTITY = Ed25519PrivateKey.from_private_bytes(bytes(range(32)))
TASK = make_task(relay_key=IDENTITY.public_key().public_bytes_raw().hex())
PLACE = Label(bytes(32), 7, bytes(16))


def rounds() -> list[RoundSpec]:
    return [
        make_round(task, kind=kind) for task in (TASK, make_task(dense_size=0)) for kind in (TRAIN, SURVEY, EVALUATE)
    ]


def seal(session: DeviceSession, kind: Kind, messages: Messages) -> bytes:
    round_, step = session.round, step_of(session.round, kind)
    mac = b"" if kind is Kind.RELAYED_KEYS else session.marks.macs[1]
    content = box_content(round_, step, messages[1], mac=mac)
    return encode_relayed(round_, session.session_id, kind, messages[0], content, KEY)


@pytest.mark.parametrize("round_", rounds(), ids=lambda round_: f"{round_.kind}-{round_.task.dense_size}")
def test_both_servers_end_up_with_the_direct_messages(round_: RoundSpec) -> None:
    session = DeviceSession(round_, np.array([1, 5, 9]))
    for kind, messages in ((Kind.RELAYED_KEYS, session.keys), (Kind.RELAYED_UPLOAD, session.write_nothing())):
        data, step = seal(session, kind, messages), step_of(round_, kind)
        assert len(data) == relayed_bytes(round_, kind)
        split = split_relayed(round_, session.session_id, kind, data)
        content = open_content(round_, session.session_id, step, PRIVATE, split.box)
        assert split.own == messages[0]
        message, mac = rebuild(round_, session.session_id, step, split.public, content)
        assert message == messages[1]
        assert mac == (b"" if step is Kind.KEYS else session.marks.macs[1])
        assert session.keys[1][24:40] not in data  # the seed of server 1 is nowhere in the clear


def test_the_sizes_of_a_round_are_those_of_its_messages() -> None:
    round_ = make_round(TASK)
    session = DeviceSession(round_, np.array([1]))
    sent = len(seal(session, Kind.RELAYED_KEYS, session.keys))
    sent += len(seal(session, Kind.RELAYED_UPLOAD, session.write_nothing()))
    assert Sizes.of(TASK).relayed_upload == sent
    assert Sizes.of(TASK).relayed_upload < Sizes.of(TASK).upload


def test_two_boxes_of_one_content_differ_and_open_to_the_same() -> None:
    relayed = [encrypt_box(KEY.key, PLACE, Kind.KEYS, b"content") for _ in range(2)]
    assert relayed[0] != relayed[1]
    assert {open_box(PRIVATE, PLACE, Kind.KEYS, box) for box in relayed} == {b"content"}


@pytest.mark.parametrize(
    ("place", "step"),
    [
        (replace(PLACE, task_id=b"\1" + bytes(31)), Kind.KEYS),
        (replace(PLACE, number=8), Kind.KEYS),
        (replace(PLACE, session_id=bytes(15) + b"\1"), Kind.KEYS),
        (PLACE, Kind.UPDATE),
        (PLACE, Kind.SUM_SHARE),
    ],
    ids=["task", "round", "session", "update", "sum share"],
)
def test_a_box_opens_only_where_it_was_made_for(place: Label, step: Kind) -> None:
    box = encrypt_box(KEY.key, PLACE, Kind.KEYS, b"content")
    with pytest.raises(BoxError):
        open_box(PRIVATE, place, step, box)


@pytest.mark.parametrize("at", range(76))
def test_every_byte_of_what_a_box_is_bound_to_counts(at: int, monkeypatch: pytest.MonkeyPatch) -> None:
    from secemb_shared.messages import relayed

    box, honest = encrypt_box(KEY.key, PLACE, Kind.KEYS, b"content"), box_info(PLACE, Kind.KEYS)
    assert len(honest) == 76
    wrong = bytearray(honest)
    wrong[at] ^= 1
    monkeypatch.setattr(relayed, "box_info", lambda _place, _step: bytes(wrong))
    with pytest.raises(BoxError):
        open_box(PRIVATE, PLACE, Kind.KEYS, box)


@settings(max_examples=60)
@given(st.integers(0, 10_000), st.integers(1, 255))
def test_whatever_byte_is_altered_on_the_way_is_noticed_or_is_server_0s_own(at: int, mask: int) -> None:
    """Its own part it may alter: that is its own share. Everything that reaches server 1 is covered."""
    round_ = make_round(TASK)
    session = DeviceSession(round_, np.array([1, 5]))
    data = bytearray(seal(session, Kind.RELAYED_KEYS, session.keys))
    at = 40 + at % (len(data) - 40)  # behind envelope and seed
    data[at] ^= mask
    with pytest.raises(SecEmbError):
        through_both(round_, session.session_id, bytes(data))


def through_both(round_: RoundSpec, session_id: bytes, data: bytes) -> bytes:
    split = split_relayed(round_, session_id, Kind.RELAYED_KEYS, data)
    if split.box[:8] != KEY.key_id:
        raise BoxError("server 1 has no such key")
    content = open_content(round_, session_id, Kind.KEYS, PRIVATE, split.box)
    return rebuild(round_, session_id, Kind.KEYS, split.public, content)[0]


def test_a_box_for_another_round_of_the_same_number_is_refused_by_name() -> None:
    told, announced = make_round(TASK), make_round(TASK, digest=bytes(range(32)))
    session = DeviceSession(told, np.array([1]))
    split = split_relayed(told, session.session_id, Kind.RELAYED_KEYS, seal(session, Kind.RELAYED_KEYS, session.keys))
    content = open_content(announced, session.session_id, Kind.KEYS, PRIVATE, split.box)
    with pytest.raises(OtherRoundError):
        rebuild(announced, session.session_id, Kind.KEYS, split.public, content)


def test_masks_and_marks_are_of_one_session_and_purpose_each() -> None:
    words = np.zeros((4, 6), dtype=np.uint32)
    places = [PLACE, replace(PLACE, number=8), replace(PLACE, session_id=bytes(15) + b"\1")]
    secrets = [bytes(32), b"\1" + bytes(31)]
    masks = {mask(place, hold, words).tobytes() for place in places for hold in secrets}
    assert len(masks) == 6
    marks = [mark(place, hold, bytes(32)) for mark in MARKS for place in places for hold in secrets]
    assert len(set(marks)) == len(MARKS) * 6


MARKS = (receipt_of, dense_mark, upload_mac)


def test_an_announcement_is_read_only_by_its_own_task() -> None:
    data = KEY.announce(IDENTITY, TASK.task_id)
    assert RelayKey.read(TASK, data) == KEY
    with pytest.raises(RelayKeyError):
        RelayKey.read(replace(TASK, name="another"), data)
    with pytest.raises(RelayKeyError):
        RelayKey.read(make_task(), data)  # a task that is not relayed
    with pytest.raises(LengthError):
        RelayKey.read(TASK, data[:-1])
    for at in range(len(data)):
        with pytest.raises(RelayKeyError):
            RelayKey.read(TASK, data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :])
