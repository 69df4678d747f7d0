"""What the kernel refuses: sizes that do not fit together, misaligned buffers, parts of work that do not exist."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest
from tests.unit.sessions import Engine, random_blocks, random_ring, rng_of

from secemb_shared.kernel import instruction_sets, native_available

if native_available():
    from secemb_shared import _kernel

__test__ = native_available()  # nothing to collect without the kernel

Array = np.ndarray[Any, np.dtype[Any]]
SESSIONS, SLOTS, DEPTH, LEAVES, ITEMS, WIDTH = 2, 5, 9, 300, 300, 3


def blocks(*shape: int) -> Array:
    return random_blocks(rng_of(*shape), *shape)


def room(*shape: int, dtype: type = np.uint8) -> Array:
    """Return what an output is written to."""
    return np.zeros(shape, dtype=dtype)


def numbers(*shape: int) -> Array:
    return random_ring(rng_of(*shape), shape, 32)


def misaligned(array: Array) -> Array:
    """Return the same numbers one byte off."""
    raw = np.zeros(array.nbytes + 16, dtype=np.uint8)
    start = 1 + -raw.ctypes.data % 16
    moved = raw[start : start + array.nbytes].view(array.dtype).reshape(array.shape)
    moved[...] = array
    return moved


def grown(array: Array) -> Array:
    return np.concatenate([array.reshape(-1), array.reshape(-1)[:1]])


def cut(array: Array) -> Array:
    return array.reshape(-1)[:-1].copy()


@dataclass
class Call:
    """One call that the kernel accepts; arguments can be replaced by name."""

    function: str
    arguments: dict[str, Any]
    outputs: tuple[str, ...]
    groups: dict[str, tuple[str, ...]] = field(default_factory=dict)

    def run(self) -> None:
        grouped = {name for names in self.groups.values() for name in names}
        values: list[Any] = []
        for name, value in self.arguments.items():
            if name in self.groups:
                values.append(tuple(self.arguments[inner] for inner in self.groups[name]))
            elif name not in grouped:
                values.append(value)
        getattr(_kernel, self.function)(*values)


def hash_blocks() -> Call:
    return Call("hash_blocks", {"key": bytes(16), "blocks": blocks(7), "out": room(7, 16)}, ("out",))


def add_stream() -> Call:
    values = room(9, dtype=np.uint32)
    return Call("add_stream", {"key": bytes(16), "values": values, "element": 4, "negative": False}, ("values",))


def generate() -> Call:
    arguments = {
        "keys": blocks(3),
        "roots0": blocks(SLOTS),
        "roots1": blocks(SLOTS) ^ 1,
        "alpha": np.zeros(SLOTS, dtype=np.int64),
        "slots": SLOTS,
        "depth": DEPTH,
        "left": room(DEPTH, SLOTS, 16),
        "right": room(DEPTH, SLOTS),
        "leaf0": room(SLOTS, 16),
        "leaf1": room(SLOTS, 16),
    }
    return Call("generate", arguments, ("left", "right", "leaf0", "leaf1"))


def convert_gen() -> Call:
    arguments = {
        "key": bytes(16),
        "leaf0": blocks(SLOTS),
        "leaf1": blocks(SLOTS) ^ 2,
        "payload": numbers(SLOTS, WIDTH),
        "slots": SLOTS,
        "width": WIDTH,
        "element": 4,
        "words": room(SLOTS, WIDTH, dtype=np.uint32),
    }
    return Call("convert_gen", arguments, ("words",))


HELD = ("party", "keys", "roots", "left", "right", "sessions", "slots", "depth")
TABLE = ("order", "leaves", "slots_per_bin", "items")
PART = ("slot_from", "slot_to", "leaf_from", "leaf_to")


def held(sessions: int) -> dict[str, Any]:
    return {
        "held": None,
        "party": 1,
        "keys": blocks(sessions, 3),
        "roots": blocks(sessions, SLOTS),
        "left": blocks(sessions, DEPTH, SLOTS),
        "right": blocks(sessions, DEPTH, SLOTS)[..., 0] & 1,
        "sessions": sessions,
        "slots": SLOTS,
        "depth": DEPTH,
    }


def expand() -> Call:
    states = room(2, LEAVES, 4, 16)
    return Call("expand", held(1) | {"leaves": LEAVES, "states": states}, ("states",), {"held": HELD})


def evaluation(function: str, arguments: dict[str, Any], output: str) -> Call:
    table = {
        "table": None,
        "order": np.arange(LEAVES, dtype=np.int32).reshape(1, -1),
        "leaves": LEAVES,
        "slots_per_bin": SLOTS,
        "items": ITEMS,
    }
    part = {"part": None, "slot_from": 0, "slot_to": SLOTS, "leaf_from": 0, "leaf_to": LEAVES}
    groups = {"held": HELD, "table": TABLE, "part": PART}
    return Call(function, held(SESSIONS) | table | part | arguments, (output,), groups)


def answer() -> Call:
    rows = numbers(ITEMS, WIDTH)
    answers = room(SESSIONS, SLOTS, WIDTH, dtype=np.uint32)
    return evaluation("answer", {"rows": rows, "columns": WIDTH, "answers": answers}, "answers")


def accumulate() -> Call:
    words = numbers(SESSIONS, SLOTS, WIDTH)
    sums = room(ITEMS, WIDTH, dtype=np.uint32)
    return evaluation("accumulate", {"words": words, "width": WIDTH, "element": 4, "sums": sums}, "sums")


def accumulate_both() -> Call:
    call = accumulate()
    call.arguments["slot_sums"] = room(SESSIONS, SLOTS, WIDTH, dtype=np.uint32)
    call.outputs = ("sums", "slot_sums")
    return call


def slot_sums() -> Call:
    arguments = {
        "leaves": LEAVES,
        "words": numbers(SESSIONS, SLOTS, WIDTH),
        "width": WIDTH,
        "element": 4,
        "slot_sums": room(SESSIONS, SLOTS, WIDTH, dtype=np.uint32),
    }
    return Call("slot_sums", held(SESSIONS) | arguments, ("slot_sums",), {"held": HELD})


def project() -> Call:
    arguments = {"key": bytes(16), "values": numbers(9), "element": 4, "out": room(128, dtype=np.uint32)}
    return Call("project", arguments, ("out",))


def row_tags() -> Call:
    arguments = {
        "key": bytes(16),
        "rows": numbers(7, WIDTH),
        "items": np.zeros(7, dtype=np.int64),
        "width": WIDTH,
        "tags": room(7, dtype=np.uint32),
    }
    return Call("row_tags", arguments, ("tags",))


CALLS: list[Callable[[], Call]] = [
    hash_blocks,
    add_stream,
    generate,
    convert_gen,
    expand,
    answer,
    accumulate,
    accumulate_both,
    slot_sums,
    project,
    row_tags,
]
EACH_CALL = pytest.mark.parametrize("make", CALLS, ids=lambda make: make.__name__)
# The kernel reads these as bytes, so they may lie anywhere.
BYTE_ALIGNED = {
    "key",
    "keys",
    "roots",
    "roots0",
    "roots1",
    "left",
    "right",
    "leaf0",
    "leaf1",
    "blocks",
    "out",
    "states",
}


def refused(call: Call) -> None:
    """Show that the call raises `ValueError` and leaves its outputs as they were."""
    for name in call.outputs:
        call.arguments[name].reshape(-1).view(np.uint8)[:] = 0xAB
    with pytest.raises(ValueError, match="kernel"):
        call.run()
    assert all((call.arguments[name].reshape(-1).view(np.uint8) == 0xAB).all() for name in call.outputs)


@EACH_CALL
def test_what_fits_is_computed(make: Callable[[], Call]) -> None:
    call = make()
    call.run()
    assert any(call.arguments[name].any() for name in call.outputs)


@EACH_CALL
@pytest.mark.parametrize("spoil", [cut, grown])
def test_a_buffer_of_another_size_is_refused(make: Callable[[], Call], spoil: Callable[[Array], Array]) -> None:
    for name, value in make().arguments.items():
        call = make()
        if isinstance(value, bytes):
            call.arguments[name] = value[:-1] if spoil is cut else value + b"x"
        elif isinstance(value, np.ndarray) and name != "values":  # as many as there are
            call.arguments[name] = spoil(value)
        else:
            continue
        refused(call)


@pytest.mark.parametrize("make", [add_stream, project], ids=lambda make: make.__name__)
@pytest.mark.parametrize("element", [4, 8])
def test_values_of_broken_elements_are_refused(make: Callable[[], Call], element: int) -> None:
    call = make()
    call.arguments |= {"values": np.zeros(8 * 5 + 3, dtype=np.uint8), "element": element}
    if make is project:
        call.arguments["out"] = room(128 * element)
    refused(call)


@EACH_CALL
def test_a_misaligned_buffer_is_refused_or_read_correctly(make: Callable[[], Call]) -> None:
    for name, value in make().arguments.items():
        if not isinstance(value, np.ndarray):
            continue
        call = make()
        call.arguments[name] = misaligned(value)
        if (name in BYTE_ALIGNED and value.dtype == np.uint8) or (make is row_tags and name == "rows"):
            call.run()
            straight = make()
            straight.run()
            for output in call.outputs:
                assert np.array_equal(call.arguments[output], straight.arguments[output]), name
        else:
            refused(call)


@pytest.mark.parametrize("make", [answer, accumulate], ids=["answer", "accumulate"])
@pytest.mark.parametrize(
    "part",
    [
        (-1, SLOTS, 0, LEAVES),
        (0, SLOTS + 1, 0, LEAVES),
        (3, 2, 0, LEAVES),
        (0, SLOTS, -256, LEAVES),
        (0, SLOTS, 0, LEAVES + 1),
        (0, SLOTS, 256, 255),
        (0, SLOTS, 1, LEAVES),
        (0, SLOTS, 128, LEAVES),
        (0, SLOTS, 512, LEAVES),
    ],
    ids=str,
)
def test_a_part_that_does_not_exist_is_refused(make: Callable[[], Call], part: tuple[int, ...]) -> None:
    call = make()
    call.arguments |= dict(zip(PART, part, strict=True))
    refused(call)


@pytest.mark.parametrize(
    ("make", "changes"),
    [
        (generate, {"slots": 0}),
        (generate, {"slots": -1}),
        (generate, {"depth": -1}),
        (generate, {"depth": 32}),
        (convert_gen, {"slots": 0}),
        (convert_gen, {"slots": -1}),
        (convert_gen, {"width": 0}),
        (convert_gen, {"width": -1}),
        (convert_gen, {"width": 2**25}),
        (convert_gen, {"element": 2}),
        (convert_gen, {"element": 16}),
        (convert_gen, {"element": -4}),
        (expand, {"party": 2}),
        (expand, {"party": -1}),
        (expand, {"sessions": -1}),
        (expand, {"slots": 0}),
        (expand, {"slots": -1}),
        (expand, {"depth": -1}),
        (expand, {"depth": 32}),
        (expand, {"leaves": 0}),
        (expand, {"leaves": -1}),
        (expand, {"leaves": 513}),
        (answer, {"party": 2}),
        (answer, {"columns": 0}),
        (answer, {"columns": -1}),
        (answer, {"items": 0}),
        (answer, {"items": -1}),
        (answer, {"items": 2**31}),
        (answer, {"slots_per_bin": 0}),
        (answer, {"slots_per_bin": -1}),
        (answer, {"slots_per_bin": 2}),
        (answer, {"leaves": 513}),
        (accumulate, {"party": -1}),
        (accumulate, {"width": 0}),
        (accumulate, {"element": 1}),
        (accumulate, {"items": ITEMS + 1}),
        (accumulate, {"slots_per_bin": SLOTS + 1}),
        (slot_sums, {"party": 2}),
        (slot_sums, {"sessions": -1}),
        (slot_sums, {"slots": 0}),
        (slot_sums, {"leaves": 0}),
        (slot_sums, {"leaves": 513}),
        (slot_sums, {"width": 0}),
        (slot_sums, {"element": 2}),
        (project, {"element": 0}),
        (project, {"element": 8}),
        (project, {"element": -4}),
        (add_stream, {"element": 0}),
        (add_stream, {"element": 2}),
        (add_stream, {"element": -8}),
        (row_tags, {"width": 0}),
        (row_tags, {"width": -1}),
        (row_tags, {"width": WIDTH + 1}),
    ],
    ids=lambda value: value.__name__ if callable(value) else str(value),
)
def test_numbers_out_of_range_are_refused(make: Callable[[], Call], changes: dict[str, int]) -> None:
    call = make()
    call.arguments |= changes
    refused(call)


def test_two_sessions_cannot_be_expanded_at_once() -> None:
    call = expand()
    call.arguments |= {name: value for name, value in held(2).items() if name != "held"}
    refused(call)


def test_an_item_beyond_the_table_is_left_out() -> None:
    """The table comes from the layout; were it wrong, the kernel would still not leave its buffers."""
    for make, output in ((answer, "answers"), (accumulate, "sums")):
        call = make()
        call.arguments["order"][:] = np.array([ITEMS, 2**31 - 1, -1, -(2**31)] * (LEAVES // 4), dtype=np.int32)
        call.run()
        assert not call.arguments[output].any()


@EACH_CALL
def test_what_cannot_be_written_is_not_written(make: Callable[[], Call]) -> None:
    for name in make().outputs:
        call = make()
        call.arguments[name].setflags(write=False)
        with pytest.raises((TypeError, ValueError, BufferError)):
            call.run()
        assert not call.arguments[name].any()


def test_a_size_that_would_wrap_around_is_refused() -> None:
    empty = np.empty(0, np.uint32)
    with pytest.raises(ValueError, match="expected"):
        _kernel.convert_gen(bytes(16), b"", b"", empty, 2**60, 4, 4, empty)
    with pytest.raises(ValueError, match="expected"):
        _kernel.expand((0, bytes(48), b"", b"", b"", 1, 2**60, 2), 4, empty)


def test_an_instruction_set_that_is_not_there_is_refused() -> None:
    for name in ("", "sse2", "AESNI", "vaes1024"):
        with pytest.raises(ValueError, match="no instruction set"):
            _kernel.select(name)


def test_an_engine_gives_the_best_instruction_set_back() -> None:
    with Engine(instruction_sets()[-1]).running():
        pass
    assert instruction_sets() == _kernel.instruction_sets()
