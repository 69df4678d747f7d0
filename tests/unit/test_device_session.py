"""Whole rounds as bytes: what a device reads and writes, and what it never does twice."""

import copy
import pickle
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from tests.unit.party_rounds import ITEMS, ROUND, UPDATES, ask, make_parties, make_session
from tests.unit.sessions import (
    BACKENDS,
    EACH_BACKEND,
    Floats,
    bit_table,
    direct,
    ids,
    make_devices,
    make_round,
    make_task,
    planned,
    play,
    seeded,
)

from secemb_lab.party_round import PartyRound
from secemb_party.evaluation import Share
from secemb_sdk.round.session import DeviceSession
from secemb_shared.dpf import Backend
from secemb_shared.errors import (
    BindingError,
    LayoutError,
    LengthError,
    NotFiniteError,
    OutOfRangeError,
    PathSpentError,
    RowTagError,
    SecEmbError,
    SessionError,
    SpecError,
)
from secemb_shared.messages import Sizes, TaskSpec, decode_keys, public_keys_digest, public_update_digest

WIDE_RING = {"ring_bits": 64, "fraction_bits": 30, "bound": 2**40}


TASKS = {
    "binned": make_task(),
    "direct": direct(),
    "planned": planned(items=101, capacity=12),
    "planned, 64 bits": planned(items=101, capacity=12, **WIDE_RING),
    "direct, 64 bits": direct(**WIDE_RING),
    "whole catalogue, planned": planned(items=37, capacity=37),
    "whole catalogue, direct": direct(items=37, capacity=37),
    "capacity beyond the catalogue": planned(items=11, capacity=40),
    "one item, direct": direct(items=1, capacity=1),
    "one item, binned": make_task(items=1, capacity=1, bins=1),
    "two items": planned(items=2, capacity=2),
    "two chunks": direct(items=300, capacity=3),
    "too few slots": make_task(items=50, capacity=20, tables=2, bins=5),
    "no dense part": make_task(dense_size=0),
    "one number": make_task(row_width=1, dense_size=1),
    "wide": planned(items=29, capacity=5, row_width=65, dense_size=130),
}


EACH_TASK = pytest.mark.parametrize("task", TASKS.values(), ids=TASKS)


@EACH_BACKEND
@EACH_TASK
def test_a_whole_round_reads_exact_bits_and_sums_exactly(task: TaskSpec, backend: Backend) -> None:
    table, devices = bit_table(task), make_devices(task, 6)
    played = play(make_round(task), table, devices, backend, seeded(1))
    for device, (items, rows) in zip(devices, played.reads, strict=True):
        assert set(items.tolist()) <= set(device.items.tolist())
        assert rows.tobytes() == table[items].tobytes()
    assert np.array_equal(played.rows, played.expected_rows)
    assert np.array_equal(played.dense, played.expected_dense)
    assert sum(items.size for items, _ in played.reads) > 0


@EACH_BACKEND
@pytest.mark.parametrize("layout", ["binned", "direct"])
def test_hundreds_of_sessions_sum_exactly(layout: str, backend: Backend) -> None:
    sizes = {"items": 7, "capacity": 2, "row_width": 3}
    task = direct(**sizes) if layout == "direct" else make_task(**sizes, tables=2, bins=2)
    played = play(make_round(task), bit_table(task), make_devices(task, 300), backend, seeded(2))
    assert np.array_equal(played.rows, played.expected_rows)
    assert np.array_equal(played.dense, played.expected_dense)
    assert played.rows.all()


@pytest.mark.parametrize("bits", [32, 64])
def test_the_largest_updates_of_a_full_cohort_do_not_wrap_around(bits: int) -> None:
    bound = min((2 ** (bits - 1) - 1) // 3, 2**53 - 1)
    task = direct(items=2, capacity=2, ring_bits=bits, fraction_bits=0, bound=bound, cohort=3, dense_size=1)
    round_ = make_round(task)
    parties = make_parties(round_)
    for seed in range(3):
        session = DeviceSession(round_, ids(0, 1), random_bytes=seeded(seed))
        ask(session, parties)
        updates = np.full((2, 5), float(bound)) * np.array([[1.0], [-1.0]])
        for party, data in zip(parties, session.write(ids(0, 1), updates, np.array([-float(bound)])), strict=True):
            party.update(session.session_id, data)
    shares = [party.share(party.complete()) for party in parties]
    signed = (shares[0].rows + shares[1].rows).view(np.int32 if bits == 32 else np.int64)
    assert signed.tolist() == [[3 * bound] * 5, [-3 * bound] * 5]
    dense = (shares[0].dense + shares[1].dense).view(signed.dtype)
    assert dense.tolist() == [-3 * bound]


def test_a_device_and_the_servers_may_use_different_backends() -> None:
    session = DeviceSession(ROUND, ITEMS, random_bytes=seeded(3), backend=BACKENDS[0])
    parties = [PartyRound(ROUND, party, bit_table(ROUND.task), backend=BACKENDS[-1]) for party in (0, 1)]
    items, rows = session.read(ask(session, parties))
    assert rows.tobytes() == bit_table(ROUND.task)[items].tobytes()


def test_both_backends_make_the_same_bytes() -> None:
    sessions = [DeviceSession(ROUND, ITEMS, random_bytes=seeded(4), backend=backend) for backend in BACKENDS]
    assert len({session.keys for session in sessions}) == 1
    assert len({session.write(ITEMS, UPDATES) for session in sessions}) == 1


def test_the_public_parts_of_both_messages_are_the_same() -> None:
    session = make_session()
    assert public_keys_digest(session.keys[0]) == public_keys_digest(session.keys[1])
    updates = session.write(ITEMS, UPDATES)
    assert public_update_digest(ROUND, updates[0]) == public_update_digest(ROUND, updates[1])


def test_lengths_are_known_before_anything_is_sent() -> None:
    session, sizes = make_session(), Sizes.of(ROUND.task)
    assert [len(data) for data in session.keys] == [sizes.keys] * 2
    assert [len(data) for data in ask(session, make_parties())] == [sizes.answer] * 2
    assert tuple(len(data) for data in session.write(ITEMS, UPDATES)) == sizes.update


def test_no_two_sessions_are_alike_though_the_items_are() -> None:
    sessions = [DeviceSession(ROUND, ITEMS) for _ in range(5)]
    assert len({session.session_id for session in sessions}) == 5
    assert len({data for session in sessions for data in session.keys}) == 10
    assert len({session.keys[party][24:40] for session in sessions for party in (0, 1)}) == 10


def test_a_second_write_raises() -> None:
    session = make_session()
    session.write(ITEMS, UPDATES)
    with pytest.raises(PathSpentError):
        session.write(ITEMS, UPDATES)
    with pytest.raises(PathSpentError):
        session.write(ITEMS, 2 * UPDATES)
    with pytest.raises(PathSpentError):
        session.write_nothing()


def test_a_write_of_nothing_spends_the_path_too() -> None:
    session = make_session()
    session.write_nothing()
    with pytest.raises(PathSpentError):
        session.write(ITEMS, UPDATES)


def with_value(value: float) -> Floats:
    updates = UPDATES.copy()
    updates[1, 3] = value
    return updates


BEYOND = (ROUND.task.bound + 1) / 2**ROUND.task.fraction_bits


REFUSED: dict[str, tuple[type[SecEmbError], tuple[Any, ...]]] = {
    "not a number": (NotFiniteError, (ITEMS, with_value(np.nan))),
    "infinity": (NotFiniteError, (ITEMS, with_value(-np.inf))),
    "beyond the bound": (OutOfRangeError, (ITEMS, with_value(BEYOND))),
    "below the bound": (OutOfRangeError, (ITEMS, with_value(-BEYOND))),
    "single precision": (NotFiniteError, (ITEMS, with_value(np.nan).astype(np.float32))),
    "a row short": (SpecError, (ITEMS, UPDATES[:2])),
    "a number short": (SpecError, (ITEMS, UPDATES[:, :4])),
    "flat": (SpecError, (ITEMS, UPDATES.reshape(-1))),
    "another item": (LayoutError, (ids(2, 21, 8), UPDATES)),
    "an item twice": (LayoutError, (ids(2, 21, 21), UPDATES)),
    "no such item": (LayoutError, (ids(2, 21, -1), UPDATES)),
    "dense is not a number": (NotFiniteError, (ITEMS, UPDATES, np.array([0, np.nan, 0]))),
    "dense is beyond the bound": (OutOfRangeError, (ITEMS, UPDATES, np.array([0, 0, BEYOND]))),
    "dense is short": (SpecError, (ITEMS, UPDATES, np.zeros(2))),
    "dense is long": (SpecError, (ITEMS, UPDATES, np.zeros(4))),
}


@pytest.mark.parametrize("name", REFUSED)
def test_a_write_that_is_refused_does_not_spend_the_path(name: str) -> None:
    error, arguments = REFUSED[name]
    session, parties = make_session(), make_parties()
    ask(session, parties)
    for _ in range(2):
        with pytest.raises(error):
            session.write(*arguments)
    for party, data in zip(parties, session.write_nothing(), strict=True):
        party.update(session.session_id, data)


def test_a_write_of_nothing_adds_zeros() -> None:
    parties = make_parties()
    for seed in range(2):
        session = make_session(seed=seed)
        ask(session, parties)
        for party, data in zip(parties, session.write_nothing(), strict=True):
            party.update(session.session_id, data)
    shares = [party.share(party.complete()) for party in parties]
    assert not (shares[0].rows + shares[1].rows).any()
    assert not (shares[0].dense + shares[1].dense).any()
    assert shares[0].rows.all()


def test_a_device_may_write_to_some_of_its_items_in_any_order() -> None:
    parties = make_parties()
    for seed in range(2):
        session = make_session(seed=seed)
        ask(session, parties)
        for party, data in zip(parties, session.write(ids(7, 2), UPDATES[:2]), strict=True):
            party.update(session.session_id, data)
    shares = [party.share(party.complete()) for party in parties]
    total = ROUND.task.ring.decode(shares[0].rows + shares[1].rows)
    assert total[[7, 2]].tolist() == [[2.0] * 5, [4.0] * 5]
    assert np.flatnonzero(total.any(axis=1)).tolist() == [2, 7]


def test_answers_from_the_wrong_place_are_refused() -> None:
    session, parties = make_session(), make_parties()
    answers = ask(session, parties)
    other = make_session(seed=1)
    with pytest.raises(BindingError):
        session.read((answers[1], answers[0]))
    with pytest.raises(BindingError):
        session.read(ask(other, parties))
    with pytest.raises(LengthError):
        session.read((answers[0], answers[1][:-1]))
    session.read(answers)


def test_a_server_with_another_model_is_noticed() -> None:
    session = make_session()
    parties = [PartyRound(ROUND, party, bit_table(ROUND.task, seed=party)) for party in (0, 1)]
    with pytest.raises(RowTagError):
        session.read(ask(session, parties))
    session.write_nothing()


def test_keys_for_the_other_party_or_round_are_refused() -> None:
    session, parties = make_session(), make_parties()
    with pytest.raises(BindingError):
        parties[0].keys(session.session_id, session.keys[1])
    with pytest.raises(BindingError):
        parties[0].keys(bytes(16), session.keys[0])
    with pytest.raises(BindingError):
        make_parties(replace(ROUND, number=8))[0].keys(session.session_id, session.keys[0])
    assert parties[0].complete() == []


def test_an_update_that_is_refused_leaves_the_session_open() -> None:
    session, parties = make_session(), make_parties()
    ask(session, parties)
    updates = session.write(ITEMS, UPDATES)
    with pytest.raises(LengthError):
        parties[0].update(session.session_id, updates[1])
    with pytest.raises(LengthError):
        parties[0].update(session.session_id, updates[0][:-1])
    assert parties[0].complete() == []
    parties[0].update(session.session_id, updates[0])
    assert parties[0].complete() == [session.session_id]


def test_the_same_bytes_may_come_again_and_get_the_same_answer() -> None:
    session, parties = make_session(), make_parties()
    answers = ask(session, parties)
    update = session.write(ITEMS, UPDATES)[0]
    for _ in range(2):
        parties[0].update(session.session_id, update)
        assert ask(session, parties) == answers
    assert parties[0].complete() == [session.session_id]


def test_other_bytes_of_the_same_session_are_refused() -> None:
    """Two correction words of one path would reveal the difference of two payloads."""
    session, twin, parties = make_session(), make_session(), make_parties()
    answers = ask(session, parties)
    other_keys = session.keys[0][:-40] + bytes(40)
    with pytest.raises(SessionError):
        parties[0].keys(session.session_id, other_keys)
    parties[0].update(session.session_id, session.write(ITEMS, UPDATES)[0])
    with pytest.raises(SessionError):
        parties[0].update(session.session_id, twin.write(ITEMS, 2 * UPDATES)[0])
    assert ask(session, parties) == answers


def test_a_session_that_was_never_opened_is_refused() -> None:
    session, parties = make_session(), make_parties()
    with pytest.raises(SessionError):
        parties[0].update(session.session_id, session.write(ITEMS, UPDATES)[0])
    with pytest.raises(SessionError):
        parties[0].share([bytes(16), session.session_id])


def test_more_items_than_the_capacity_are_truncated_and_counted() -> None:
    everything = np.arange(23, dtype=np.int64)
    session, parties = DeviceSession(ROUND, everything, random_bytes=seeded(1)), make_parties()
    items, rows = session.read(ask(session, parties))
    assert items.size + session.truncated == 23
    assert items.size <= ROUND.task.capacity
    assert rows.tobytes() == bit_table(ROUND.task)[items].tobytes()
    session.write(everything, np.ones((23, 5)))


@pytest.mark.parametrize("items", [ids(23), ids(-1), ids(1, 1), np.array([1], dtype=np.int32), np.array([[1]])])
def test_items_that_cannot_be_are_refused(items: np.ndarray[tuple[int, ...], np.dtype[np.int64]]) -> None:
    with pytest.raises(LayoutError):
        DeviceSession(ROUND, items)


def test_a_session_cannot_be_stored_and_a_copy_shares_its_path() -> None:
    session = make_session()
    for attempt in (copy.deepcopy, pickle.dumps):
        with pytest.raises(PathSpentError):
            attempt(session)
    twin = copy.copy(session)
    session.write(ITEMS, UPDATES)
    with pytest.raises(PathSpentError):
        twin.write(ITEMS, UPDATES)


def test_nothing_secret_is_printed() -> None:
    session, parties = make_session(), make_parties()
    ask(session, parties)
    for party, data in zip(parties, session.write(ITEMS, UPDATES), strict=True):
        party.update(session.session_id, data)
    share = Share(np.full((2, 2), 123, dtype=np.uint32), np.full(2, 45, dtype=np.uint32))
    assert repr(session) == str(session) == "<DeviceSession of round 7>"
    inner = next(iter(parties[0]._sessions.values()))
    for silent in (
        parties[0],
        share,
        inner,
        session._placement,
        session._secret,
        decode_keys(session.round, session.session_id, 0, session.keys[0]),
    ):
        assert repr(silent) == str(silent)
        assert "array" not in repr(silent)
    assert repr(share) == object.__repr__(share)
    assert repr(parties[0]) == object.__repr__(parties[0])
    assert repr(inner) == object.__repr__(inner)


@pytest.mark.parametrize("name", REFUSED)
def test_errors_name_no_item_and_no_value(name: str) -> None:
    _, arguments = REFUSED[name]
    with pytest.raises(SecEmbError) as caught:
        make_session().write(*arguments)
    assert not any(character.isdigit() for character in str(caught.value))
