"""Every backend computes the same: the definition, and the kernel with each instruction set of this machine.

`make sanitize` runs this file and its neighbours test_kernel_*.py under AddressSanitizer.
"""

import platform
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path

import numpy as np
import pytest
from tests.unit import reference
from tests.unit.sessions import ENGINES, leaf_table, random_blocks, random_keys, random_ring, rng_of

from secemb_shared.dpf import Backend, HeldKeys, LeafTable, RingArray, SessionKeys, default_backend
from secemb_shared.dpf._native import Native
from secemb_shared.dpf._portable import Portable
from secemb_shared.kernel import instruction_sets, native_available
from secemb_shared.layout import Geometry

KEY = bytes(range(16))
WIDTHS = [1, 3, 4, 5, 12, 16, 17, 33, 65, 130]
RINGS = pytest.mark.parametrize("bits", [32, 64])
PORTABLE = Portable()


def shape(items: int, tables: int, bins: int, slots_per_bin: int) -> Geometry:
    return Geometry(items=items, tables=tables, bins=bins, slots_per_bin=slots_per_bin)


SHAPES = {
    "one slot, depth 0": shape(1, 1, 1, 1),
    "three slots, depth 0": shape(1, 1, 1, 3),
    "five slots, depth 1": shape(2, 1, 1, 5),
    "three slots, odd leaves": shape(7, 1, 1, 3),
    "one slot, exactly one chunk": shape(256, 1, 1, 1),
    "three slots, two chunks": shape(300, 1, 1, 3),
    "five slots, five chunks": shape(1100, 1, 1, 5),
    "bins of one leaf": shape(9, 2, 9, 1),
    "short bins": shape(10, 2, 3, 1),
    "many short bins": shape(100, 4, 17, 1),
    "few large bins": shape(1500, 2, 4, 1),
    "bins with two slots": shape(23, 2, 3, 2),
    "bins with five slots": shape(50, 1, 9, 5),
}
EACH_SHAPE = pytest.mark.parametrize("geometry", SHAPES.values(), ids=SHAPES)
SMALL = [SHAPES[name] for name in ("three slots, odd leaves", "short bins", "bins with five slots")]


@pytest.fixture(params=ENGINES, ids=str)
def backend(request: pytest.FixtureRequest) -> Iterator[Backend]:
    with request.param.running() as backend:
        yield backend


def processor_flags() -> set[str]:
    listing = Path("/proc/cpuinfo")
    return set(listing.read_text(encoding="utf-8").split()) if listing.exists() else set()


def test_the_kernel_is_there_where_it_can_be() -> None:
    known = platform.machine().lower() in ("x86_64", "amd64", "aarch64", "arm64")
    if known and "aes" in processor_flags() and shutil.which("gcc"):
        assert native_available()
    assert native_available() == (instruction_sets() != [])


def test_the_instruction_sets_are_those_of_the_processor() -> None:
    flags = processor_flags()
    wide = {"vaes", "avx512f", "avx512bw", "avx512dq", "avx512vl"}
    needs = {"vaes512": wide, "vaes256": {"vaes", "avx2"}, "aesni": {"aes"}, "armv8": {"aes"}}
    assert [name for name in instruction_sets() if flags and not needs[name] <= flags] == []
    if native_available() and platform.machine() == "x86_64" and flags:
        assert instruction_sets() == [name for name in ("vaes512", "vaes256", "aesni") if needs[name] <= flags]


def test_the_default_is_the_kernel_and_says_so() -> None:
    expected = Native if native_available() else Portable
    assert isinstance(default_backend(), expected)
    assert default_backend().name == (f"native, {instruction_sets()[0]}" if native_available() else "portable")


def test_the_hash_is_made_of_standard_aes(backend: Backend) -> None:
    """FIPS-197, appendix C.1: what σ takes to the standard's plaintext must be hashed to ciphertext ⊕ plaintext."""
    plain = bytes.fromhex("00112233445566778899aabbccddeeff")
    cipher = bytes.fromhex("69c4e0d86a7b0430d8cdb78070b4c55a")
    low, high = plain[:8], plain[8:]
    block = bytes(a ^ b for a, b in zip(low, high, strict=True)) + low
    hashed = backend.hash_blocks(bytes(range(16)), np.frombuffer(block, dtype=np.uint8).reshape(1, 16))
    assert hashed.tobytes() == bytes(a ^ b for a, b in zip(plain, cipher, strict=True))


@pytest.mark.parametrize("count", [0, 1, 3, 4, 5, 31, 32, 33, 100])
def test_hashes_agree(backend: Backend, count: int) -> None:
    blocks = random_blocks(rng_of(count), count)
    by_hand = [reference.hash_block(KEY, int.from_bytes(block.tobytes(), "little")) for block in blocks]
    assert backend.hash_blocks(KEY, blocks).tobytes() == b"".join(x.to_bytes(16, "little") for x in by_hand)


def test_hashes_keep_the_shape_of_their_blocks(backend: Backend) -> None:
    blocks = random_blocks(rng_of(1), 3, 10)
    assert np.array_equal(backend.hash_blocks(KEY, blocks[:, ::2]), PORTABLE.hash_blocks(KEY, blocks)[:, ::2])


@RINGS
@pytest.mark.parametrize("negative", [False, True])
def test_streams_agree(backend: Backend, negative: bool, bits: int) -> None:
    sign = -1 if negative else 1
    for count in (0, 1, 3, 4, 5, 127, 128, 129, 1000):
        values = random_ring(rng_of(count), count, bits)
        pads = reference.stream(KEY, count, bits)
        expected = [(int(value) + sign * pad) % 2**bits for value, pad in zip(values, pads, strict=True)]
        backend.add_stream(KEY, values, negative=negative)
        assert values.tolist() == expected, count


def test_a_stream_touches_nothing_around_it(backend: Backend) -> None:
    values = np.zeros(100, dtype=np.uint32)
    backend.add_stream(KEY, values[10:43], negative=False)
    assert values[10:43].all()
    assert not values[:10].any()
    assert not values[43:].any()


@pytest.mark.parametrize("depth", [0, 1, 2, 9, 31])
def test_generated_paths_agree(backend: Backend, depth: int) -> None:
    for slots in (1, 3, 4, 5, 8, 9, 33):
        rng = rng_of(slots, depth)
        keys = SessionKeys(rng.bytes(16), rng.bytes(16), rng.bytes(16))
        roots0, roots1 = random_blocks(rng, slots), random_blocks(rng, slots)
        alpha = rng.integers(0, 2**depth, size=slots)
        made, expected = (b.generate(keys, roots0, roots1, alpha, depth) for b in (backend, PORTABLE))
        assert np.array_equal(made[0].left, expected[0].left), slots
        assert np.array_equal(made[0].right, expected[0].right), slots
        assert np.array_equal(made[1], expected[1]), slots
        assert np.array_equal(made[2], expected[2]), slots


@RINGS
@pytest.mark.parametrize("width", WIDTHS)
def test_generated_payloads_agree(backend: Backend, width: int, bits: int) -> None:
    for slots in (1, 3, 5, 33, 70):
        rng = rng_of(slots, width)
        leaf0, leaf1 = random_blocks(rng, slots), random_blocks(rng, slots)
        payload = random_ring(rng, (slots, width), bits)
        made, expected = (b.convert_gen(KEY, leaf0, leaf1, payload) for b in (backend, PORTABLE))
        assert np.array_equal(made, expected), slots


@EACH_SHAPE
def test_expanded_leaves_agree(backend: Backend, geometry: Geometry) -> None:
    for party in (0, 1):
        held = random_keys(geometry, 1, party, rng_of(geometry.slots))
        nodes = backend.expand(held, geometry.leaves)
        assert nodes.shape == (geometry.leaves, geometry.slots, 16)
        assert np.array_equal(nodes, PORTABLE.expand(held, geometry.leaves)), party


@EACH_SHAPE
def test_answers_agree(backend: Backend, geometry: Geometry) -> None:
    for party in (0, 1):
        check_answers(backend, geometry, sessions=3, party=party, columns=7)


@pytest.mark.parametrize("columns", [1, 2, 15, 16, 17, 63, 64, 65, 66, 131])
def test_answers_of_every_width_agree(backend: Backend, columns: int) -> None:
    for geometry in SMALL:
        check_answers(backend, geometry, sessions=1, party=1, columns=columns)


def check_answers(backend: Backend, geometry: Geometry, *, sessions: int, party: int, columns: int) -> None:
    rng = rng_of(geometry.slots, columns)
    held, table = random_keys(geometry, sessions, party, rng), leaf_table(geometry, rng)
    rows = random_ring(rng, (geometry.items, columns), 32)
    made = backend.answer(held, table, rows)
    assert made.shape == (sessions, geometry.slots, columns)
    assert np.array_equal(made, PORTABLE.answer(held, table, rows))


@EACH_SHAPE
@RINGS
def test_sums_agree(backend: Backend, geometry: Geometry, bits: int) -> None:
    for party in (0, 1):
        check_sums(backend, Additions(geometry, sessions=3, party=party, width=5, bits=bits))


@RINGS
@pytest.mark.parametrize("width", WIDTHS)
def test_sums_of_every_width_agree(backend: Backend, width: int, bits: int) -> None:
    for geometry in SMALL:
        check_sums(backend, Additions(geometry, sessions=2, party=0, width=width, bits=bits))


@RINGS
def test_wide_rows_over_many_chunks_agree(backend: Backend, bits: int) -> None:
    for name, width in (("three slots, two chunks", 130), ("few large bins", 65)):
        check_sums(backend, Additions(SHAPES[name], sessions=2, party=1, width=width, bits=bits))


def test_one_session_and_many_sessions_agree(backend: Backend) -> None:
    for sessions in (1, 2, 40):
        check_sums(backend, Additions(SHAPES["short bins"], sessions=sessions, party=1, width=3, bits=32))


@dataclass(frozen=True)
class Additions:
    """Random keys and correction words of several sessions, and the sums they are added to."""

    geometry: Geometry
    sessions: int
    party: int
    width: int
    bits: int

    @cached_property
    def held(self) -> HeldKeys:
        return random_keys(self.geometry, self.sessions, self.party, rng_of(self.width))

    @cached_property
    def table(self) -> LeafTable:
        return leaf_table(self.geometry, rng_of(self.sessions))

    @cached_property
    def words(self) -> RingArray:
        return random_ring(rng_of(1), (self.sessions, self.geometry.slots, self.width), self.bits)

    @cached_property
    def before(self) -> RingArray:
        return random_ring(rng_of(2), (self.geometry.items, self.width), self.bits)


@cache
def sums_by_definition(additions: Additions) -> RingArray:
    sums = additions.before.copy()
    PORTABLE.accumulate(additions.held, additions.table, additions.words, sums)
    return sums


def check_sums(backend: Backend, additions: Additions) -> None:
    guarded = np.zeros((additions.geometry.items + 2, additions.width), dtype=additions.before.dtype)
    guarded[1:-1] = additions.before
    backend.accumulate(additions.held, additions.table, additions.words, guarded[1:-1])
    assert np.array_equal(guarded[1:-1], sums_by_definition(additions))
    assert not guarded[[0, -1]].any()


@RINGS
def test_answers_and_sums_agree_with_the_paper_by_hand(backend: Backend, bits: int) -> None:
    for party in (0, 1):
        additions = Additions(SHAPES["short bins"], sessions=2, party=party, width=6, bits=bits)
        rows = random_ring(rng_of(3), (additions.geometry.items, 4), 32)
        answers, sums = by_hand(additions, rows.tolist())
        assert backend.answer(additions.held, additions.table, rows).tolist() == answers
        made = additions.before.copy()
        backend.accumulate(additions.held, additions.table, additions.words, made)
        assert made.tolist() == sums


def by_hand(additions: Additions, rows: list[list[int]]) -> tuple[list[list[list[int]]], list[list[int]]]:
    """Return the answers and the sums that one leaf at a time gives (one slot a bin)."""
    geometry, held = additions.geometry, additions.held
    answers = [[[0] * len(rows[0]) for _ in range(geometry.slots)] for _ in range(additions.sessions)]
    sums: list[list[int]] = additions.before.tolist()
    for session, slot, leaf in np.ndindex(additions.sessions, geometry.slots, geometry.leaves):
        item = int(additions.table.order[slot, leaf])
        if item < 0:
            continue
        left, right, convert = (key.tobytes() for key in held.keys[session])
        root = int.from_bytes(held.roots[session, slot].tobytes(), "little")
        node = reference.path_eval(left, right, held.party, root, words_of(held, session, slot), leaf)
        if node[1]:
            answers[session][slot] = [a ^ b for a, b in zip(answers[session][slot], rows[item], strict=True)]
        words = additions.words[session, slot].tolist()
        share = reference.convert_eval(convert, held.party, node, words, additions.bits)
        sums[item] = [(a + b) % 2**additions.bits for a, b in zip(sums[item], share, strict=True)]
    return answers, sums


def words_of(held: HeldKeys, session: int, slot: int) -> list[reference.Word]:
    blocks = [int.from_bytes(block.tobytes(), "little") for block in held.left[session, :, slot]]
    rights = held.right[session, :, slot].tolist()
    return [reference.Word(block & ~1, block & 1, right) for block, right in zip(blocks, rights, strict=True)]


def test_the_definition_does_not_depend_on_how_many_slots_fit_in_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    additions = Additions(SHAPES["bins with five slots"], sessions=2, party=1, width=5, bits=32)
    rows = random_ring(rng_of(4), (additions.geometry.items, 3), 32)
    answers = PORTABLE.answer(additions.held, additions.table, rows)
    expected = sums_by_definition(additions)
    for limit in (1, 2000):
        monkeypatch.setattr("secemb_shared.dpf._portable._WORKING_BYTES", limit)
        assert np.array_equal(PORTABLE.answer(additions.held, additions.table, rows), answers)
        check_sums(PORTABLE, additions)
        assert sums_by_definition(additions) is expected


@pytest.mark.parametrize("width", WIDTHS)
def test_row_tags_agree(backend: Backend, width: int) -> None:
    for count in (0, 1, 3, 33):
        rng = rng_of(width, count)
        rows, items = random_ring(rng, (count, width), 32), rng.integers(0, 2**31, size=count)
        tags = [reference.row_tag(KEY, item, row) for item, row in zip(items.tolist(), rows.tolist(), strict=True)]
        assert backend.row_tags(KEY, rows, items).tolist() == tags, count
