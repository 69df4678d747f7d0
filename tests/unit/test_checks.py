"""Verifiable keys: honest sessions always pass, and a slot that could write two rows does not."""

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
import pytest
from tests.unit.sessions import EACH_BACKEND, fingerprints, random_blocks, rng_of

from secemb_shared.dpf import (
    HASH_BYTES,
    Backend,
    Blocks,
    CorrectionWords,
    HeldKeys,
    SessionKeys,
    SlotChecks,
    convert_eval,
    default_backend,
    expand_roots,
    fingerprint_keys,
    leaf_corrections,
)
from secemb_shared.dpf import checks as definition
from secemb_shared.dpf._native import Native
from secemb_shared.dpf._portable import Portable
from secemb_shared.dpf.paths import SEED_BITS
from secemb_shared.labels import Label, Purpose
from secemb_shared.prg import stream
from secemb_shared.randomness import Indices

LABEL = Label(bytes(range(32)), 7, b"one session of 1")
KEYS = fingerprint_keys(Label(bytes(range(32)), 7), b"a secret of both")
SLOTS, DEPTH, LEAVES = 6, 5, 27


@dataclass(frozen=True)
class Session:
    """What both parties hold of a session that may be hostile."""

    held: tuple[HeldKeys, HeldKeys]
    checks: SlotChecks

    def passes(self, backend: Backend | None = None) -> bool:
        backend = backend or default_backend()
        first, second = (fingerprints(backend, held, LEAVES, self.checks, KEYS) for held in self.held)
        return np.array_equal(first, second)

    def rows_written(self, slot: int) -> int:
        """Count the leaves at which the two parties' shares of an update do not cancel out."""
        word, key = np.full((1, 4), 12345, dtype=np.uint32), LABEL.key(Purpose.CONVERT)
        shares = [
            convert_eval(key, party, Portable().expand(held, LEAVES)[:, slot], word)
            for party, held in enumerate(self.held)
        ]
        return int((shares[0] + shares[1]).any(axis=-1).sum())


def make(rng: np.random.Generator, alpha: Indices | None = None) -> tuple[Session, CorrectionWords, list[Blocks]]:
    """Return an honest session, its words and its roots."""
    keys = SessionKeys.of(LABEL)
    roots = [expand_roots(LABEL, rng.bytes(16), SLOTS) for _ in (0, 1)]
    chosen = rng.integers(0, LEAVES, SLOTS) if alpha is None else alpha
    words, leaf0, leaf1 = default_backend().generate(keys, roots[0], roots[1], chosen, DEPTH)
    checks = SlotChecks.of(LABEL, leaf_corrections(LABEL, chosen, (leaf0, leaf1)))
    return Session(_held(roots, words), checks), words, roots


def _held(roots: list[Blocks], words: CorrectionWords) -> tuple[HeldKeys, HeldKeys]:
    keys = SessionKeys.of(LABEL)
    return HeldKeys.of(0, keys, roots[0], words), HeldKeys.of(1, keys, roots[1], words)


def refit(session: Session, leaf: int, slot: int = 0) -> Session:
    """Return the session with the correction that makes one leaf pass: the best that a hostile device can do."""
    nodes = [Portable().expand(held, LEAVES)[leaf, slot][None] for held in session.held]
    key, corrections = LABEL.key(Purpose.LEAF_HASH), session.checks.corrections.copy()
    first, second = (definition.leaf_hash(key, node, leaf) for node in nodes)
    corrections[0, slot] = (first ^ second)[0]
    return replace(session, checks=SlotChecks(session.checks.leaf_keys, corrections))


@EACH_BACKEND
def test_honest_sessions_pass_whatever_they_read(backend: Backend) -> None:
    rng = rng_of(1)
    for alpha in (None, np.zeros(SLOTS, dtype=np.int64), np.full(SLOTS, LEAVES - 1)):
        session, _, _ = make(rng, alpha)
        assert session.passes(backend)
        assert [session.rows_written(slot) for slot in range(SLOTS)] == [1] * SLOTS


def test_a_hundred_thousand_slots_of_honest_sessions_pass() -> None:
    rng, keys = rng_of(2), SessionKeys.of(LABEL)
    slots, leaves, depth = 20_000, 5, 3
    for _ in range(5):
        roots = [expand_roots(LABEL, rng.bytes(16), slots) for _ in (0, 1)]
        alpha = rng.integers(0, leaves, slots)
        words, leaf0, leaf1 = default_backend().generate(keys, roots[0], roots[1], alpha, depth)
        checks = SlotChecks.of(LABEL, leaf_corrections(LABEL, alpha, (leaf0, leaf1)))
        prints = [fingerprints(default_backend(), one, leaves, checks, KEYS) for one in _held(roots, words)]
        assert np.array_equal(prints[0], prints[1])


def random_words(rng: np.random.Generator) -> Session:
    """Words that are random instead of generated: every leaf differs."""
    honest, words, roots = make(rng)
    right = rng.integers(0, 2, words.right.shape, dtype=np.uint8)
    return Session(_held(roots, CorrectionWords(random_blocks(rng, DEPTH, SLOTS), right)), honest.checks)


def one_word_changed(rng: np.random.Generator) -> Session:
    """One bit of the last level's word: the leaves with t = 1 at their parent differ."""
    honest, words, roots = make(rng)
    left = words.left.copy()
    left[DEPTH - 1, 0, 7] ^= 1
    return Session(_held(roots, CorrectionWords(left, words.right)), honest.checks)


def second_control_bit(rng: np.random.Generator) -> Session:
    """The control bit of the last level's other child: both children of one parent differ in t."""
    honest, words, roots = make(rng)
    right = words.right.copy()
    right[DEPTH - 1, 0] ^= 1
    return Session(_held(roots, CorrectionWords(words.left, right)), honest.checks)


def equal_seeds(rng: np.random.Generator) -> Session:
    """Equal master seeds, words of zero and control bits of one: only t differs, and at every leaf."""
    honest, words, roots = make(rng)
    left, right = np.zeros_like(words.left), np.ones_like(words.right)
    left[..., 0] = 1  # t_CW on the left
    corrections = SlotChecks(honest.checks.leaf_keys, np.zeros_like(honest.checks.corrections))
    return Session(_held([roots[0], roots[0]], CorrectionWords(left, right)), corrections)


ATTACKS = [random_words, one_word_changed, second_control_bit, equal_seeds]
EACH_ATTACK = pytest.mark.parametrize("attack", ATTACKS, ids=lambda attack: attack.__name__)


@EACH_ATTACK
def test_a_slot_that_writes_several_rows_does_not_pass(attack: Callable[[np.random.Generator], Session]) -> None:
    rng = rng_of(3)
    for _ in range(20):
        session = attack(rng)
        if session.rows_written(0) > 1:
            assert not session.passes()
            assert not any(refit(session, leaf).passes() for leaf in range(0, LEAVES, 5))
    assert attack(rng_of(4)).rows_written(0) > 1


@EACH_BACKEND
def test_a_correction_that_does_not_fit_does_not_pass(backend: Backend) -> None:
    session, _, _ = make(rng_of(5))
    for slot, at in ((0, 0), (SLOTS - 1, HASH_BYTES - 1), (3, 20)):
        corrections = session.checks.corrections.copy()
        corrections[0, slot, at] ^= 1
        assert not replace(session, checks=SlotChecks(session.checks.leaf_keys, corrections)).passes(backend)


def test_corrections_of_two_slots_cannot_be_swapped() -> None:
    """A fingerprint that forgot the place would be the same: each slot's values are only moved."""
    session, _, _ = make(rng_of(6), np.full(SLOTS, 3))
    corrections = session.checks.corrections[:, [1, 0, *range(2, SLOTS)]]
    assert not replace(session, checks=SlotChecks(session.checks.leaf_keys, corrections)).passes()


def test_without_the_control_bit_in_the_hash_a_session_could_write_every_row(monkeypatch: pytest.MonkeyPatch) -> None:
    """The planted fault: a hash of the seed alone passes the attack with equal seeds."""
    honest = definition.leaf_hash

    def of_the_seed_alone(key: bytes, nodes: Blocks, leaf: int) -> Blocks:
        return honest(key, nodes & SEED_BITS, leaf)

    session = equal_seeds(rng_of(7))
    assert session.rows_written(0) == LEAVES
    assert not session.passes(Portable())
    monkeypatch.setattr("secemb_shared.dpf._portable.leaf_hash", of_the_seed_alone)
    assert session.passes(Portable())


def test_two_leaves_with_equal_nodes_need_different_corrections(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else one correction would fit both: a device finds such leaves in about 2^43 steps, in a hash that ignores x."""
    nodes = random_blocks(rng_of(8), 2)

    def corrections() -> list[bytes]:
        hashes = [[definition.leaf_hash(b"k" * 16, node[None], leaf) for node in nodes] for leaf in (0, 1)]
        return [(first ^ second).tobytes() for first, second in hashes]

    assert corrections()[0] != corrections()[1]
    honest = stream
    monkeypatch.setattr("secemb_shared.dpf.checks.stream", lambda key, count, first: honest(key, count))  # planted
    assert corrections()[0] == corrections()[1]


@EACH_BACKEND
def test_every_backend_hashes_as_the_definition_does(backend: Backend) -> None:
    rng = rng_of(10)
    for count, leaves, depth in ((1, 1, 0), (7, 3, 2), (13, 300, 9)):
        nodes, at = random_blocks(rng, count), rng.integers(0, leaves, count)
        assert np.array_equal(backend.leaf_hashes(b"k" * 16, nodes, at), Portable().leaf_hashes(b"k" * 16, nodes, at))
        held = _random_held(rng, 2, count, depth)
        checks = SlotChecks(random_blocks(rng, 2), random_blocks(rng, 2, 3 * count).reshape(2, count, HASH_BYTES))
        expected = Portable().fingerprint(held, leaves, checks, KEYS)
        assert np.array_equal(fingerprints(backend, held, leaves, checks, KEYS), expected)
        if backend.name.startswith("native"):
            assert np.array_equal(fingerprints(Native(threads=3), held, leaves, checks, KEYS), expected)


def _random_held(rng: np.random.Generator, sessions: int, slots: int, depth: int) -> HeldKeys:
    right = rng.integers(0, 2, (sessions, depth, slots), dtype=np.uint8)
    return HeldKeys(
        1,
        random_blocks(rng, sessions, 3),
        random_blocks(rng, sessions, slots),
        random_blocks(rng, sessions, depth, slots),
        right,
    )


def test_fingerprints_say_the_same_for_different_items() -> None:
    """Both parties find the same for an honest session, so neither learns anything from the other's."""
    rng = rng_of(9)
    prints = []
    for item in (0, LEAVES - 1):
        for _ in range(200):
            session, _, _ = make(rng, np.full(SLOTS, item))
            first, second = (
                fingerprints(default_backend(), held, LEAVES, session.checks, KEYS) for held in session.held
            )
            assert np.array_equal(first, second)
            prints.append(np.unpackbits(first[0]))
    means = [np.mean(prints[:200], axis=0), np.mean(prints[200:], axis=0)]
    deviation = 0.5 / np.sqrt(200)
    assert max(np.abs(mean - 0.5).max() for mean in means) < 5 * deviation
