"""Holds and upload MACs: each server has its own, and nothing that the other one knows leads to them."""

import hashlib
from dataclasses import replace

import numpy as np
import pytest
from tests.unit.sessions import make_round, make_task

from secemb_sdk.round.session import DeviceSession
from secemb_shared.errors import MacError, SessionError
from secemb_shared.holds import MARK_BYTES, check_upload_mac, hold_of, upload_mac
from secemb_shared.labels import Label
from secemb_shared.messages.spec import EVALUATE, SURVEY, TRAIN

PLACE, HOLD, DIGEST = Label(bytes(32), 7, bytes(16)), bytes(range(32)), bytes(range(32, 64))


@pytest.mark.parametrize("kind", [TRAIN, SURVEY, EVALUATE])
def test_each_server_takes_the_mac_that_is_for_it_and_no_other(kind: str) -> None:
    session = DeviceSession(make_round(make_task(), kind=kind), np.array([1, 5]))
    uploads, place = session.write_nothing(), session.round.label(session.session_id)
    digests = [hashlib.sha256(one).digest() for one in uploads]
    for party in (0, 1):
        hold = hold_of(session.keys[party])
        check_upload_mac(place, hold, digests[party], session.marks.macs[party])
        for wrong in (session.marks.macs[1 - party], session.marks.receipt, bytes(MARK_BYTES), b""):
            with pytest.raises(MacError):
                check_upload_mac(place, hold, digests[party], wrong)


def test_the_keys_of_the_two_servers_differ_in_the_private_seed_alone_so_neither_hold_follows_from_the_other() -> None:
    session = DeviceSession(make_round(make_task()), np.array([1, 5]))
    first, second = session.keys
    assert first[40:] == second[40:]
    assert first[24:40] != second[24:40]
    assert len(set(session.holds)) == 2
    # Whoever has everything but the seed has nothing: another seed is another hold.
    guessed = {hold_of(second[:24] + seed + first[40:]) for seed in (first[24:40], bytes(16))}
    assert session.holds[1] not in guessed


def test_a_mac_is_of_one_place_hold_and_upload() -> None:
    places = [
        PLACE,
        replace(PLACE, task_id=b"\1" + bytes(31)),
        replace(PLACE, number=8),
        replace(PLACE, session_id=b"\1" * 16),
    ]
    macs = {upload_mac(place, hold, one) for place in places for hold in (HOLD, DIGEST) for one in (HOLD, DIGEST)}
    assert len(macs) == 16
    assert {len(mac) for mac in macs} == {MARK_BYTES} == {16}


@pytest.mark.parametrize("at", range(8 * MARK_BYTES))
def test_every_bit_of_a_mac_counts(at: int) -> None:
    right = upload_mac(PLACE, HOLD, DIGEST)
    check_upload_mac(PLACE, HOLD, DIGEST, right)
    wrong = bytearray(right)
    wrong[at // 8] ^= 1 << at % 8
    with pytest.raises(MacError):
        check_upload_mac(PLACE, HOLD, DIGEST, bytes(wrong))


def test_there_are_no_marks_before_there_is_an_upload() -> None:
    session = DeviceSession(make_round(make_task()), np.array([1]))
    with pytest.raises(SessionError):
        _ = session.marks
    session.write_nothing()
    assert session.marks == session.marks
    assert not any(one.hex() in repr(session.marks) for one in session.marks.macs)
