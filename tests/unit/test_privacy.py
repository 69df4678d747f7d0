"""One server's view of a session looks the same whatever the items are, and the test for that does see a leak.

The view is everything a party gets and can compute from it alone: the bits of its KEYS message, the nodes of every
leaf of every tree with their control bits, and the bits of its UPDATE messages, the second of them sent on a retry.
Many sessions of one kind of device are compared with many of another, bit by bit: `distance` is the largest
difference of two frequencies in standard deviations, `spread` says whether the differences taken together are too
large. Both have limits that chance exceeds once in a million; seeds are fixed, so a result is always the same.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache, partial
from itertools import combinations
from statistics import NormalDist

import numpy as np
import numpy.typing as npt
import pytest
from tests.unit.sessions import direct, ids, make_round, make_task, seeded

from secemb_sdk.round.session import DeviceSession, Messages
from secemb_shared.dpf import Backend, Blocks, CorrectionWords, PathSecret, RingArray, SessionKeys, default_backend
from secemb_shared.dpf._portable import Portable
from secemb_shared.dpf.paths import control_bits
from secemb_shared.layout import PADDING
from secemb_shared.messages import RoundSpec, decode_keys, decode_update, encode_keys
from secemb_shared.messages.codec import slot_checks
from secemb_shared.randomness import Indices, RandomBytes

Bits = npt.NDArray[np.uint8]
CHANCE = 1e-6
SESSIONS = 600

SIZES = {"row_width": 2, "dense_size": 2}
ROUNDS = {
    "direct": make_round(direct(items=16, capacity=4, **SIZES)),
    "binned": make_round(make_task(items=64, capacity=8, tables=2, bins=8, **SIZES)),
}
EACH_LAYOUT = pytest.mark.parametrize("layout", ROUNDS)

# Which items a device has in its n-th session of the round's task.
Choice = Callable[[RoundSpec, int], Indices]
CHOICES: dict[str, Choice] = {
    "none": lambda round_, n: ids(),
    "one": lambda round_, n: ids(5),
    "lowest": lambda round_, n: np.arange(round_.task.capacity, dtype=np.int64),
    "highest": lambda round_, n: round_.task.items - 1 - np.arange(round_.task.capacity, dtype=np.int64),
    "all": lambda round_, n: np.arange(round_.task.items, dtype=np.int64),
    "others each time": lambda round_, n: (5 * n + np.arange(round_.task.capacity, dtype=np.int64)) % round_.task.items,
}


@dataclass(frozen=True)
class Sent:
    """What left the device: keys, an update and what it sent when it was asked to send the update again."""

    session_id: bytes
    keys: Messages
    updates: tuple[Messages, Messages]


Phone = Callable[[RoundSpec, Indices, RandomBytes], Sent]


def largest_updates(round_: RoundSpec, items: Indices) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
    task = round_.task
    largest = task.bound / 2**task.fraction_bits
    return np.full((items.size, task.row_width), largest), np.full(task.dense_size, largest if items.size else 0.0)


def honest(round_: RoundSpec, items: Indices, random_bytes: RandomBytes, backend: Backend | None = None) -> Sent:
    session = DeviceSession(round_, items, random_bytes=random_bytes, backend=backend)
    update = session.write(items, *largest_updates(round_, items))
    return Sent(session.session_id, session.keys, (update, update))


def view(round_: RoundSpec, party: int, sent: Sent) -> Bits:
    """Return all the bits that one party has of one session."""
    held = decode_keys(round_, sent.session_id, party, sent.keys[party])
    nodes = default_backend().expand(held, round_.task.geometry.leaves)
    controls = control_bits(nodes)
    pairs = [controls[one] ^ controls[other] for one, other in combinations(range(len(controls)), 2)]
    numbers = [elements(round_, sent.session_id, party, update[party]) for update in sent.updates]
    parts = [
        np.frombuffer(sent.keys[party], dtype=np.uint8, offset=24),
        np.ascontiguousarray(nodes).reshape(-1),
        numbers[0].view(np.uint8),
        (numbers[1] - numbers[0]).view(np.uint8),
    ]
    return np.concatenate([*(np.unpackbits(part, bitorder="little") for part in parts), np.concatenate(pairs)])


def elements(round_: RoundSpec, session_id: bytes, party: int, data: bytes) -> RingArray:
    words, dense = decode_update(round_, session_id, party, data)
    return np.concatenate([words.reshape(-1), words[:0, 0] if dense is None else dense])


@cache
def packed_views(layout: str, choice: str, count: int, phone: Phone) -> list[Bits]:
    """Return both parties' views of many sessions, eight bits to the byte because there are many."""
    round_, random_bytes = ROUNDS[layout], seeded(f"{layout}/{choice}")
    sent = [phone(round_, CHOICES[choice](round_, number), random_bytes) for number in range(count)]
    return [np.stack([np.packbits(view(round_, party, one)) for one in sent]) for party in (0, 1)]


def views(layout: str, choice: str, count: int, phone: Phone = honest) -> tuple[Bits, Bits]:
    """Return both parties' views of many sessions, (sessions, bits) each."""
    both = packed_views(layout, choice, count, phone)
    return np.unpackbits(both[0], axis=1), np.unpackbits(both[1], axis=1)


def linked(bits: Bits) -> Bits:
    """Return the views and, behind them, how each differs from that of the device's next session."""
    return np.concatenate([bits[0::2], bits[0::2] ^ bits[1::2]], axis=1)


def deviations(some: Bits, others: Bits) -> npt.NDArray[np.float64]:
    """Return for each bit how far apart the two frequencies are, in standard deviations."""
    frequencies = [bits.mean(axis=0) for bits in (some, others)]
    pooled = (frequencies[0] + frequencies[1]) / 2
    deviation = np.sqrt(pooled * (1 - pooled) * (1 / len(some) + 1 / len(others)))
    varies = deviation > 0  # a bit that is always the same on both sides tells nothing
    z: npt.NDArray[np.float64] = (frequencies[0] - frequencies[1])[varies] / deviation[varies]
    return z


def distance(some: Bits, others: Bits) -> float:
    return float(np.abs(deviations(some, others)).max())


def limit(bits: int) -> float:
    """Return the distance that chance exceeds once in a million, with as many bits to choose from."""
    return NormalDist().inv_cdf(1 - CHANCE / (2 * bits))


def spread(some: Bits, others: Bits) -> float:
    """Return by how much the squared differences are too large together, in standard deviations."""
    z = deviations(some, others)
    return float(((z**2).sum() - z.size) / np.sqrt(2 * z.size))


def looks_the_same(some: Bits, others: Bits) -> bool:
    return distance(some, others) < limit(some.shape[1]) and spread(some, others) < NormalDist().inv_cdf(1 - CHANCE)


@EACH_LAYOUT
@pytest.mark.parametrize("party", [0, 1])
def test_a_view_has_the_same_distribution_for_different_items(layout: str, party: int) -> None:
    samples = {choice: linked(views(layout, choice, SESSIONS)[party]) for choice in CHOICES}
    for one, other in combinations(CHOICES, 2):
        assert looks_the_same(samples[one], samples[other]), (one, other)


def upload_bits(layout: str, party: int) -> int:
    task = ROUNDS[layout].task
    return task.ring_bits * (task.geometry.slots * task.row_width + (0 if party else task.dense_size))


@EACH_LAYOUT
@pytest.mark.parametrize("party", [0, 1])
def test_every_bit_that_a_party_gets_is_a_fair_coin(layout: str, party: int) -> None:
    for choice in CHOICES:
        bits = views(layout, choice, SESSIONS)[party]
        changing = bits[:, bits.any(axis=0)]  # without the retry: it sends the same again, so it adds only zeros
        assert bits.shape[1] - changing.shape[1] == upload_bits(layout, party)  # and no other bit may be stuck
        z = (changing.mean(axis=0) - 0.5) * 2 * np.sqrt(len(bits))
        assert float(np.abs(z).max()) < limit(z.size)
        assert float(((z**2).sum() - z.size) / np.sqrt(2 * z.size)) < NormalDist().inv_cdf(1 - CHANCE)


@EACH_LAYOUT
@pytest.mark.parametrize("party", [0, 1])
def test_control_bits_fall_on_all_leaves_alike(layout: str, party: int) -> None:
    """The same for the bits that matter most, as a chi-square over leaves: where a point is must not show."""
    geometry = ROUNDS[layout].task.geometry
    counts = {choice: control_counts(layout, choice, party) for choice in ("none", "lowest", "highest", "all")}
    expected = sum(counts.values()) / len(counts)
    chi_square = sum(float(((count - expected) ** 2 / (SESSIONS / 4)).sum()) for count in counts.values())
    freedom = (len(counts) - 1) * geometry.slots * geometry.leaves
    assert abs(chi_square - freedom) / np.sqrt(2 * freedom) < NormalDist().inv_cdf(1 - CHANCE)


def control_counts(layout: str, choice: str, party: int) -> npt.NDArray[np.float64]:
    """Return how often each leaf of each slot had its control bit set."""
    geometry = ROUNDS[layout].task.geometry
    words = geometry.depth * geometry.slots
    start = 8 * (16 + 16 * words + -(-words // 8))
    bits = views(layout, choice, SESSIONS)[party][:, start : start + geometry.leaves * geometry.slots * 128 : 128]
    counts: npt.NDArray[np.float64] = bits.sum(axis=0, dtype=np.float64)
    return counts


@EACH_LAYOUT
def test_all_messages_have_the_same_lengths_for_all_items(layout: str) -> None:
    round_ = ROUNDS[layout]
    lengths = set()
    for choice in CHOICES.values():
        sent = honest(round_, choice(round_, 0), seeded(1))
        lengths.add((*map(len, sent.keys), *(len(data) for update in sent.updates for data in update)))
    nothing = DeviceSession(round_, ids(3), random_bytes=seeded(2))
    lengths.add((*map(len, nothing.keys), *map(len, 2 * nothing.write_nothing())))
    assert len(lengths) == 1


# Planted leaks: phones that do one thing wrong.


class ClearDirections(Portable):
    """Control bits of the correction words that are not masked: they say left or right."""

    def generate(
        self, keys: SessionKeys, roots0: Blocks, roots1: Blocks, alpha: Indices, depth: int
    ) -> tuple[CorrectionWords, Blocks, Blocks]:
        words, leaf0, leaf1 = super().generate(keys, roots0, roots1, alpha, depth)
        for level in range(depth):
            words.right[level] = alpha >> (depth - 1 - level) & 1
        return words, leaf0, leaf1


class RareSlip(Portable):
    """One control bit of one slot, in one session of four."""

    def __init__(self) -> None:
        self._sessions: Iterator[int] = iter(range(10**9))

    def generate(
        self, keys: SessionKeys, roots0: Blocks, roots1: Blocks, alpha: Indices, depth: int
    ) -> tuple[CorrectionWords, Blocks, Blocks]:
        words, leaf0, leaf1 = super().generate(keys, roots0, roots1, alpha, depth)
        if next(self._sessions) % 4 == 0:
            words.right[0, 0] = alpha[0] >> (depth - 1) & 1
        return words, leaf0, leaf1


class SilentPadding(Portable):
    """No correction word where there is nothing to add."""

    def convert_gen(self, key: bytes, leaf0: Blocks, leaf1: Blocks, payload: RingArray) -> RingArray:
        return super().convert_gen(key, leaf0, leaf1, payload) * payload.any(axis=1, keepdims=True)


class ClearPayload(Portable):
    """Rows that are not masked at all."""

    def convert_gen(self, key: bytes, leaf0: Blocks, leaf1: Blocks, payload: RingArray) -> RingArray:
        return payload.copy()


class HalfClear(Portable):
    """Rows of which only the first number is masked."""

    def convert_gen(self, key: bytes, leaf0: Blocks, leaf1: Blocks, payload: RingArray) -> RingArray:
        words = super().convert_gen(key, leaf0, leaf1, payload)
        words[:, 1] = payload[:, 1]
        return words


class ClearDense(Portable):
    """A dense part from which no stream is taken."""

    def add_stream(self, key: bytes, values: RingArray, *, negative: bool) -> None:
        if not negative:  # the roots come from a stream as well
            super().add_stream(key, values, negative=negative)


def padding_without_words(round_: RoundSpec, items: Indices, random_bytes: RandomBytes) -> Sent:
    """Send zeros as the keys of slots that hold nothing."""
    session = DeviceSession(round_, items, random_bytes=random_bytes)
    held = decode_keys(round_, session.session_id, 0, session.keys[0])
    real = session._placement.items != PADDING
    words = CorrectionWords(held.left[0] * real[:, None], held.right[0] * real)
    [checks] = slot_checks(round_, session.session_id, session.keys[0]).corrections
    keys = [encode_keys(round_, session.session_id, party, session._seeds[party], words, checks) for party in (0, 1)]
    update = session.write(items, *largest_updates(round_, items))
    return Sent(session.session_id, (keys[0], keys[1]), (update, update))


def padding_at_leaf_zero_in_clear(round_: RoundSpec, items: Indices, random_bytes: RandomBytes) -> Sent:
    """Point every empty slot at its first leaf, and say so."""
    session = DeviceSession(round_, items, random_bytes=random_bytes)
    session._placement.leaves[session._placement.items == PADDING] = 0
    session._backend = ClearDirections()
    session.keys, session._secret = session._open()
    update = session.write(items, *largest_updates(round_, items))
    return Sent(session.session_id, session.keys, (update, update))


def second_word(round_: RoundSpec, items: Indices, random_bytes: RandomBytes) -> Sent:
    """Train again before the retry, and take a second correction word from the path."""
    session = DeviceSession(round_, items, random_bytes=random_bytes)
    leaves = session._secret.spend()
    updates = []
    for factor in (0.5, 1.0):
        session._secret = PathSecret(*leaves)
        rows, dense = largest_updates(round_, items)
        updates.append(session.write(items, factor * rows, dense))
    return Sent(session.session_id, session.keys, (updates[0], updates[1]))


def with_fixed(draws: tuple[int, ...], random_bytes: RandomBytes) -> RandomBytes:
    """Return a source that is worn out: of its 16-byte draws those in `draws` are always the same bytes."""
    made = 0

    def worn_out(count: int) -> bytes:
        nonlocal made
        if count != 16:
            return random_bytes(count)
        made += 1
        fresh = random_bytes(count)
        return bytes([made] * 16) if made in draws else fresh

    return worn_out


def same_session_again(round_: RoundSpec, items: Indices, random_bytes: RandomBytes) -> Sent:
    """Use session id and master seeds of an earlier session again."""
    return honest(round_, items, with_fixed((1, 2, 3), random_bytes))


def one_seed_for_both(round_: RoundSpec, items: Indices, random_bytes: RandomBytes) -> Sent:
    """Give both parties the same master seed."""
    seed = random_bytes(16)
    session_id = random_bytes(16)
    draws = iter([session_id, seed, seed])
    return honest(round_, items, lambda count: next(draws) if count == 16 else random_bytes(count))


LEAKS: dict[str, tuple[Phone, str, str]] = {
    "directions in clear": (partial(honest, backend=ClearDirections()), "lowest", "highest"),
    "padding at leaf 0, in clear": (padding_at_leaf_zero_in_clear, "none", "all"),
    "keys of padding are zero": (padding_without_words, "none", "all"),
    "updates of padding are zero": (partial(honest, backend=SilentPadding()), "none", "all"),
    "updates in clear": (partial(honest, backend=ClearPayload()), "none", "all"),
    "half of the update in clear": (partial(honest, backend=HalfClear()), "none", "all"),
    "two updates from one path": (second_word, "none", "all"),
    "a session used again": (same_session_again, "lowest", "others each time"),
    "one seed for both servers": (one_seed_for_both, "lowest", "highest"),
}


@pytest.mark.parametrize("name", LEAKS)
def test_a_planted_leak_is_seen_by_either_server(name: str) -> None:
    phone, one, other = LEAKS[name]
    samples = [views("direct", choice, 200, phone) for choice in (one, other)]
    for party in (0, 1):
        some, others = (linked(sample[party]) for sample in samples)
        assert distance(some, others) > 1.3 * limit(some.shape[1])
        assert not looks_the_same(some, others)


def test_one_item_among_padding_without_keys_is_seen() -> None:
    some, others = (views("direct", choice, 400, padding_without_words)[0] for choice in ("none", "one"))
    assert not looks_the_same(some, others)


@pytest.mark.parametrize(
    "name", ["keys of padding are zero", "updates of padding are zero", "two updates from one path"]
)
def test_a_planted_leak_is_seen_in_the_binned_layout(name: str) -> None:
    phone, one, other = LEAKS[name]
    some, others = (linked(views("binned", choice, 200, phone)[1]) for choice in (one, other))
    assert not looks_the_same(some, others)


def test_a_dense_part_in_clear_is_seen_by_the_server_that_gets_it() -> None:
    phone = partial(honest, backend=ClearDense())
    samples = [views("direct", choice, 300, phone) for choice in ("none", "all")]
    assert not looks_the_same(samples[0][0], samples[1][0])
    assert looks_the_same(samples[0][1], samples[1][1])


def test_a_rare_slip_is_seen() -> None:
    some, others = (
        views("direct", choice, 1000, partial(honest, backend=RareSlip()))[0] for choice in ("lowest", "highest")
    )
    assert not looks_the_same(some, others)


def test_the_comparison_is_calm_about_coins_and_sharp_about_a_bias() -> None:
    rng = np.random.default_rng(1)
    fair = [rng.integers(0, 2, size=(1000, 20_000), dtype=np.uint8) for _ in range(2)]
    assert looks_the_same(*fair)
    one_bit = fair[1].copy()
    one_bit[:, 7] |= rng.random(1000) < 0.5
    assert distance(fair[0], one_bit) > limit(20_000)
    every_bit = fair[1] | (rng.random(fair[1].shape) < 0.03)
    assert distance(fair[0], every_bit) < limit(20_000)
    assert spread(fair[0], every_bit) > NormalDist().inv_cdf(1 - CHANCE)
