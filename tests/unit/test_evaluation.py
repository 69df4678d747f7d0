"""One party's arithmetic: shares travel exactly, batches do not matter, and digests are of the public parts."""

from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.sessions import (
    BACKENDS,
    backend_name,
    bit_table,
    ids,
    make_devices,
    make_round,
    make_task,
    plain_sum,
    rng_of,
    seeded,
)

from secemb_party.evaluation import BATCH, Evaluation, KeysMessage, SessionBodies, Share, check_update, upload_bytes
from secemb_sdk.round.session import DeviceSession
from secemb_shared import row_access, secure_sum
from secemb_shared.dpf import Backend, RingArray
from secemb_shared.errors import KindError, LengthError, SecEmbError
from secemb_shared.labels import Purpose
from secemb_shared.messages import RoundSpec
from secemb_shared.messages.codec import Sizes, encode_sum_share, public_keys_digest
from secemb_shared.messages.spec import EVALUATE, SURVEY, TRAIN
from secemb_shared.secure_sum import SUM_BOUND, SUM_RING

KINDS = pytest.mark.parametrize("kind", [TRAIN, SURVEY, EVALUATE])


@dataclass(frozen=True)
class Fleet:
    """A round with both parties, what each of them got, and the sum that must come out."""

    round: RoundSpec
    parties: tuple[Evaluation, Evaluation]
    uploaded: tuple[list[SessionBodies], list[SessionBodies]]
    rows: RingArray
    dense: RingArray
    sums: RingArray

    def share(self, party: int, batch: int) -> Share:
        """Return a party's share, so many sessions at a time."""
        share, uploaded = Share.empty(self.round), self.uploaded[party]
        for first in range(0, len(uploaded), batch):
            self.parties[party].add(uploaded[first : first + batch], share)
        return share


def evaluations(round_: RoundSpec, backend: Backend) -> tuple[Evaluation, Evaluation]:
    tagged = row_access.tag_rows(round_, bit_table(round_.task), backend)
    return Evaluation(round_, 0, tagged, backend), Evaluation(round_, 1, tagged, backend)


def a_fleet(kind: str, backend: Backend = BACKENDS[-1], count: int = 11, **task: object) -> Fleet:
    round_ = make_round(make_task(**task), kind=kind)
    random_bytes, rng = seeded(kind), rng_of(1)
    uploaded: tuple[list[SessionBodies], list[SessionBodies]] = ([], [])
    row_sums, dense_sums = [], []
    sums = np.zeros(round_.sum_size, dtype=SUM_RING.dtype)
    for device in make_devices(round_.task, count, most=3):
        session = DeviceSession(round_, device.items, random_bytes=random_bytes, backend=backend)
        assert not session.truncated, "three items always find a place in three tables"
        row_sums.append((device.items, device.updates))
        dense_sums.append((ids(0), device.dense[None]))
        if kind == TRAIN:
            messages = session.write(device.items, device.updates, device.dense)
        else:
            values = SUM_RING.encode(rng.uniform(0, 50, round_.sum_size), bound=SUM_BOUND)
            sums += values
            messages = hidden_sum(round_, session.session_id, values, random_bytes(16))
        for party in (0, 1):
            uploaded[party].append(SessionBodies(session.session_id, session.keys[party], messages[party]))
    shape = (round_.task.items, round_.task.row_width)
    trains = kind == TRAIN
    empty = Share.empty(round_)
    return Fleet(
        round_,
        evaluations(round_, backend),
        uploaded,
        plain_sum(round_.task, shape, row_sums) if trains else empty.rows,
        plain_sum(round_.task, (1, round_.task.dense_size), dense_sums)[0] if trains else empty.dense,
        sums,
    )


def hidden_sum(round_: RoundSpec, session_id: bytes, values: RingArray, seed: bytes) -> tuple[bytes, bytes]:
    explicit = secure_sum.hide(round_.label(session_id).key(Purpose.SUM_SHARE, seed), values)
    return encode_sum_share(round_, session_id, 0, explicit), encode_sum_share(round_, session_id, 1, seed)


@KINDS
@pytest.mark.parametrize("backend", BACKENDS, ids=backend_name)
@pytest.mark.parametrize("batches", [(11, 11), (1, 4), (5, 3)])
def test_the_two_shares_add_up_to_the_sum_however_they_were_batched(
    kind: str, backend: Backend, batches: tuple[int, int]
) -> None:
    fleet = a_fleet(kind, backend)
    total = fleet.share(0, batches[0]) + fleet.share(1, batches[1])
    assert np.array_equal(total.rows, fleet.rows)
    assert np.array_equal(total.dense, fleet.dense)
    assert np.array_equal(total.sums, fleet.sums)


@KINDS
@pytest.mark.parametrize("party", [0, 1])
def test_batches_do_not_change_a_single_byte_of_a_share(kind: str, party: int) -> None:
    fleet = a_fleet(kind)
    assert len({fleet.share(party, batch).encode() for batch in (1, 2, 7, 11)}) == 1


@KINDS
def test_one_share_alone_says_nothing_that_the_sum_says(kind: str) -> None:
    fleet = a_fleet(kind)
    share = fleet.share(1, 11)
    held, total = (share.rows, fleet.rows) if kind == TRAIN else (share.sums, fleet.sums)
    assert not (held == total).all()


@KINDS
@pytest.mark.parametrize("bits", [24, 32, 64])
def test_a_share_travels_as_it_is(kind: str, bits: int) -> None:
    fleet = a_fleet(kind, ring_bits=bits, bound=2**14)
    share = fleet.share(0, 11)
    again = Share.decode(fleet.round, share.encode())
    for sent, received in zip(_parts(share), _parts(again), strict=True):
        assert (sent.dtype, sent.shape) == (received.dtype, received.shape)
        ring = SUM_RING if sent.dtype == SUM_RING.dtype else share.ring
        assert np.array_equal(ring.reduce(sent), received)
    assert again.encode() == share.encode()


def test_a_share_is_little_endian_rows_then_the_dense_part() -> None:
    round_ = make_round(make_task(items=6, row_width=1, dense_size=1, capacity=2, tables=1, bins=1))
    share = Share.empty(round_)
    share.rows[:, 0] = range(6)
    share.dense[0] = 0x01020304
    assert share.encode() == b"".join(i.to_bytes(4, "little") for i in range(6)) + b"\x04\x03\x02\x01"


@KINDS
@given(difference=st.integers(-8, 8).filter(bool))
def test_a_share_of_another_length_is_refused(kind: str, difference: int) -> None:
    round_ = make_round(make_task(), kind=kind)
    data = Share.empty(round_).encode()
    wrong = data + bytes(difference) if difference > 0 else data[:difference]
    with pytest.raises(LengthError, match=str(len(data))):
        Share.decode(round_, wrong)


def test_a_share_does_not_show_its_numbers() -> None:
    assert "rows" not in repr(Share.empty(make_round(make_task())))


@KINDS
@pytest.mark.parametrize("party", [0, 1])
def test_uploads_have_the_length_that_the_round_fixes(kind: str, party: int) -> None:
    fleet = a_fleet(kind, count=2)
    assert {len(one.update) for one in fleet.uploaded[party]} == {upload_bytes(fleet.round, party)}
    assert {len(one.keys) for one in fleet.uploaded[party]} == {Sizes.of(fleet.round.task).keys}


@KINDS
def test_both_parties_find_the_same_digests_of_the_public_parts(kind: str) -> None:
    fleet = a_fleet(kind, count=3)
    for first, second in zip(*fleet.uploaded, strict=True):
        found = [
            (public_keys_digest(one.keys), check_update(fleet.round, party, one.session_id, one.update))
            for party, one in enumerate((first, second))
        ]
        assert found[0] == found[1]


def test_a_changed_public_part_changes_its_digest_and_a_private_one_does_not() -> None:
    fleet = a_fleet(TRAIN, count=1)
    (session,) = fleet.uploaded[0]
    found = public_keys_digest(session.keys)
    assert public_keys_digest(_flipped(session.keys, 40)) != found
    assert public_keys_digest(_flipped(session.keys, 24)) == found

    def digest(body: bytes) -> bytes:
        return check_update(fleet.round, 0, session.session_id, body)

    assert digest(_flipped(session.update, 24)) != digest(session.update)
    assert digest(_flipped(session.update, len(session.update) - 1)) == digest(session.update)


@KINDS
def test_another_partys_or_sessions_message_is_refused(kind: str) -> None:
    fleet = a_fleet(kind, count=2)
    one, other = fleet.uploaded[0]
    for party, wrong in ((1, one.keys), (0, other.keys), (0, one.update)):
        with pytest.raises(SecEmbError):
            fleet.parties[party].answer([KeysMessage(one.session_id, wrong)])
    for party, wrong in ((1, one.update), (0, other.update), (0, one.keys)):
        with pytest.raises(SecEmbError):
            check_update(fleet.round, party, one.session_id, wrong)


def test_a_survey_takes_no_update_even_of_the_right_length() -> None:
    fleet = a_fleet(SURVEY, count=1)
    (one,) = fleet.uploaded[0]
    with pytest.raises(KindError):
        check_update(fleet.round, 0, one.session_id, one.update[:7] + b"\x03" + one.update[8:])


def test_the_answer_to_the_same_keys_is_the_same() -> None:
    fleet = a_fleet(TRAIN, count=1)
    batch = keys_of(fleet, 1)
    again = evaluations(fleet.round, BACKENDS[0])[1]
    assert fleet.parties[1].answer(batch) == fleet.parties[1].answer(batch) == again.answer(batch)


@pytest.mark.parametrize("backend", BACKENDS, ids=backend_name)
def test_keys_answered_together_get_what_each_gets_alone(backend: Backend) -> None:
    fleet = a_fleet(TRAIN, backend, count=BATCH + 2)
    batch = keys_of(fleet, 0)
    assert fleet.parties[0].answer(batch) == [fleet.parties[0].answer([one])[0] for one in batch]
    assert fleet.parties[0].answer([]) == []


def keys_of(fleet: Fleet, party: int) -> list[KeysMessage]:
    return [KeysMessage(one.session_id, one.keys) for one in fleet.uploaded[party]]


def _parts(share: Share) -> tuple[RingArray, RingArray, RingArray]:
    return share.rows, share.dense, share.sums


def _flipped(data: bytes, at: int) -> bytes:
    return data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :]
