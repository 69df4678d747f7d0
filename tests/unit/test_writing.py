"""Writing rows: the two parties' sums add up to the plain sum, exactly."""

import numpy as np
import pytest
from tests.unit.sessions import (
    BACKENDS,
    EACH_BACKEND,
    SHAPES,
    direct,
    make_round,
    make_task,
    random_blocks,
    random_ring,
    rng_of,
    seeded,
)

from secemb_shared import row_access
from secemb_shared.dpf import Backend, HeldKeys, PathSecret, RingArray, SessionKeys
from secemb_shared.errors import PathSpentError, SpecError
from secemb_shared.messages import RoundSpec, TaskSpec
from secemb_shared.randomness import Indices

TASKS = SHAPES | {"64 bits": make_task(ring_bits=64, fraction_bits=20)}
EACH_TASK = pytest.mark.parametrize("task", TASKS.values(), ids=TASKS)


class Session:
    """One device at the level of arrays: it adds `rows` to `items`."""

    def __init__(self, round_: RoundSpec, items: Indices, rows: RingArray, backend: Backend, seed: int) -> None:
        rng = rng_of(seed)
        label = round_.label(rng.bytes(16))
        placement = round_.layout.place(items, seeded(seed))
        keys, depth = SessionKeys.of(label), round_.task.geometry.depth
        roots = [random_blocks(rng, placement.leaves.size) for _ in range(2)]
        path, leaf0, leaf1 = backend.generate(keys, roots[0], roots[1], placement.leaves, depth)
        self.held = [HeldKeys.of(party, keys, roots[party], path) for party in (0, 1)]
        self.items, _ = placement.collect(placement.items)
        self.secret = PathSecret(leaf0, leaf1)
        self.words = row_access.correction_words(self.secret, label, placement.arrange(items, rows), backend)


def make_session(round_: RoundSpec, backend: Backend, seed: int) -> tuple[Session, RingArray]:
    """Return a session with random ring elements, and what it adds."""
    task, rng = round_.task, rng_of(seed, 1)
    items = rng.permutation(task.items)[: int(rng.integers(0, task.capacity + 1))].astype(np.int64)
    rows = random_ring(rng, (items.size, task.row_width), task.ring_bits)
    session = Session(round_, items, rows, backend, seed)
    plain = row_access.empty_sums(round_)
    placed = np.isin(items, session.items)
    plain[items[placed]] += rows[placed]
    return session, plain


@EACH_BACKEND
@EACH_TASK
def test_one_session_adds_exactly_its_rows(backend: Backend, task: TaskSpec) -> None:
    round_ = make_round(task)
    for seed in range(3):
        session, plain = make_session(round_, backend, seed)
        shares = [row_access.empty_sums(round_) for _ in range(2)]
        for held, sums in zip(session.held, shares, strict=True):
            row_access.accumulate(round_, held, session.words[None], sums, backend)
        assert np.array_equal(row_access.reconstruct(*shares), plain)


@EACH_BACKEND
@EACH_TASK
def test_many_sessions_at_once_add_up(backend: Backend, task: TaskSpec) -> None:
    round_ = make_round(task)
    sessions = [make_session(round_, backend, seed) for seed in range(10)]
    words = np.stack([session.words for session, _ in sessions])
    shares = [row_access.empty_sums(round_) for _ in range(2)]
    for party, sums in enumerate(shares):
        held = HeldKeys.together([session.held[party] for session, _ in sessions])
        row_access.accumulate(round_, held, words, sums, backend)
    expected = sum((plain for _, plain in sessions), row_access.empty_sums(round_))
    assert np.array_equal(row_access.reconstruct(*shares), expected)


@EACH_BACKEND
def test_batches_add_to_what_is_there(backend: Backend) -> None:
    round_ = make_round(make_task())
    session, _ = make_session(round_, backend, 1)
    once, twice = row_access.empty_sums(round_), row_access.empty_sums(round_)
    row_access.accumulate(round_, session.held[0], session.words[None], once, backend)
    for _ in range(2):
        row_access.accumulate(round_, session.held[0], session.words[None], twice, backend)
    assert np.array_equal(twice, once + once)


def test_different_words_for_the_two_parties_spoil_the_sum() -> None:
    """Rule 2 of the design: the public part must be the same for both, or the sum is noise."""
    round_ = make_round(direct())
    session, plain = make_session(round_, BACKENDS[-1], 1)
    shares = [row_access.empty_sums(round_) for _ in range(2)]
    for party, sums in enumerate(shares):
        words = session.words + np.uint32(party)
        row_access.accumulate(round_, session.held[party], words[None], sums)
    spoiled = (row_access.reconstruct(*shares) != plain).any(axis=1)
    assert spoiled.mean() > 0.5


def test_a_session_missing_on_one_side_spoils_the_sum() -> None:
    """Rule 3 of the design."""
    round_ = make_round(direct())
    sessions = [make_session(round_, BACKENDS[-1], seed) for seed in (1, 2)]
    shares = [row_access.empty_sums(round_) for _ in range(2)]
    for session, _ in sessions:
        row_access.accumulate(round_, session.held[0], session.words[None], shares[0])
    row_access.accumulate(round_, sessions[0][0].held[1], sessions[0][0].words[None], shares[1])
    assert (row_access.reconstruct(*shares) != sessions[0][1]).all(axis=1).mean() > 0.9


def test_correction_words_spend_the_path() -> None:
    round_ = make_round(make_task())
    session, _ = make_session(round_, BACKENDS[-1], 1)
    assert session.secret.spent
    payload = np.zeros((round_.task.geometry.slots, round_.task.row_width), dtype=np.uint32)
    with pytest.raises(PathSpentError):
        row_access.correction_words(session.secret, round_.label(bytes(16)), payload)


@EACH_BACKEND
@pytest.mark.parametrize("fault", ["slots", "width", "sessions", "words type", "items", "sums width", "sums type"])
def test_arrays_of_another_shape_are_refused_and_nothing_is_added(backend: Backend, fault: str) -> None:
    round_ = make_round(make_task())
    session, _ = make_session(round_, backend, 1)
    words, sums = session.words[None], row_access.empty_sums(round_)
    wrong = {
        "slots": (words[:, :-1], sums),
        "width": (words[:, :, :-1], sums),
        "sessions": (np.repeat(words, 2, axis=0), sums),
        "words type": (words.astype(np.uint64), sums),
        "items": (words, sums[:-1]),
        "sums width": (words, sums[:, :-1]),
        "sums type": (words, sums.astype(np.uint64)),
    }[fault]
    with pytest.raises(SpecError):
        row_access.accumulate(round_, session.held[0], *wrong, backend)
    assert not wrong[1].any()


def test_empty_sums_are_zeros_of_the_task_s_ring() -> None:
    sums = row_access.empty_sums(make_round(TASKS["64 bits"]))
    assert sums.dtype == np.uint64
    assert sums.shape == (23, 5)
    assert not sums.any()
