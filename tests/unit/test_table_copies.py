"""Copies of the table: the same bytes wherever they are made, encoded once, and a delta leads from one to the other."""

import asyncio
import hashlib
import os
import struct
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TypeVar

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from secemb_party.errors import ModelMissingError
from secemb_party.storage import Floats, Model, ModelFiles, Shape
from secemb_party.storage.copies import Body, TableCopies, WantedCopy
from secemb_sdk.errors import CopyError
from secemb_sdk.recommend.copy import apply_delta
from secemb_shared.errors import EncodingError, LengthError, MessageError
from secemb_shared.messages.table import CopyShape, TableFormat, delta_head

T = TypeVar("T")
TASK = bytes(range(32))
MEMORY = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None  # hundreds of stores need no disk
FORMATS = pytest.mark.parametrize("format_", list(TableFormat))
FORMAT = st.sampled_from(list(TableFormat))
LARGEST = float(np.finfo(np.float32).max)
FINITE = st.floats(width=32, allow_nan=False, allow_infinity=False)


class CountingStore(ModelFiles):
    """A store that counts how often it is read."""

    loads = 0

    def load(self, version: int) -> Model:
        self.loads += 1
        return super().load(version)


async def at_once(work: Callable[[], T]) -> T:
    await asyncio.sleep(0)
    return work()


def in_thread(work: Callable[[], T]) -> Awaitable[T]:
    return asyncio.to_thread(work)


@contextmanager
def a_store(*tables: Floats, dense: int = 3) -> Iterator[CountingStore]:
    """Yield a store with these tables as versions 0, 1, …"""
    items, width = tables[0].shape
    with TemporaryDirectory(dir=MEMORY) as folder:
        store = CountingStore(Path(folder), TASK, Shape(items=items, width=width, dense=dense))
        for version, rows in enumerate(tables):
            part = np.full(dense, version, dtype=np.float32)
            store.save(Model(task_id=TASK, version=version, rows=rows.copy(), dense=part))
        yield store


def shape_of(store: ModelFiles, format_: TableFormat) -> CopyShape:
    rows = store.load(0).rows
    return CopyShape(format=format_, items=rows.shape[0], width=rows.shape[1])


def copies_of(store: ModelFiles) -> TableCopies:
    rows, dense = store.load(0).rows, store.load(0).dense
    return TableCopies(store, Shape(items=rows.shape[0], width=rows.shape[1], dense=dense.size), at_once, store.folder)


def get(store: ModelFiles, wanted: WantedCopy) -> Body:
    return asyncio.run(copies_of(store).get(wanted))


def contents(body: Body) -> bytes:
    return body.read(0, body.size)


@st.composite
def tables(draw: st.DrawFn) -> tuple[Floats, Floats]:
    """Return a table and one in which some rows changed, perhaps none, perhaps by the sign of a zero."""
    items, width = draw(st.integers(1, 30)), draw(st.integers(1, 6))
    numbers = st.sampled_from([0.0, -0.0, 1.0, -2.5, 1e-40, LARGEST]) | FINITE
    older = np.array(draw(st.lists(numbers, min_size=items * width, max_size=items * width)), dtype=np.float32)
    newer = older.copy()
    for at in draw(st.lists(st.integers(0, older.size - 1), max_size=8)):
        newer[at] = draw(numbers)
    return older.reshape(items, width), newer.reshape(items, width)


@settings(deadline=None, max_examples=60)
@given(tables(), FORMAT)
def test_a_delta_leads_from_one_copy_to_the_other_bit_for_bit(
    pair: tuple[Floats, Floats], format_: TableFormat
) -> None:
    with a_store(*pair) as store, TemporaryDirectory() as folder:
        copies = [get(store, WantedCopy(version=version, format=format_)) for version in (0, 1)]
        delta = get(store, WantedCopy(version=1, format=format_, since=0))
        older, change, newer = (Path(folder) / name for name in ("older", "change", "newer"))
        older.write_bytes(contents(copies[0]))
        change.write_bytes(contents(delta))
        shape = shape_of(store, format_)
        apply_delta(older, change, newer, shape)
        assert newer.read_bytes() == contents(copies[1])
        assert delta.whole == copies[1].sha256 == hashlib.sha256(newer.read_bytes()).hexdigest()
        encoded = [np.frombuffer(contents(copy), np.uint8).reshape(-1, shape.row_bytes) for copy in copies]
        changed = np.flatnonzero((encoded[0] != encoded[1]).any(axis=1))
        assert delta.size == 4 + changed.size * (4 + shape.row_bytes) <= shape.longest_delta


@settings(deadline=None, max_examples=60)
@given(tables(), FORMAT)
def test_a_copy_is_what_the_docstring_says(pair: tuple[Floats, Floats], format_: TableFormat) -> None:
    rows = pair[0]
    expected = b""
    for row in rows:
        if format_ is TableFormat.FLOAT32:
            expected += struct.pack(f"<{row.size}f", *row)
            continue
        if format_ is TableFormat.FLOAT16:
            expected += struct.pack(f"<{row.size}e", *np.clip(row, -65504, 65504))
            continue
        scale = min(np.float32(np.abs(row).max() / np.float32(127)), np.float32(float.fromhex("0x1.020406p+121")))
        scale = scale if scale >= 2.0**-126 else np.float32(0)
        steps = [max(-127, min(127, round(float(np.float32(x / scale))))) if scale else 0 for x in row]
        expected += struct.pack(f"<f{row.size}b", scale, *steps)
    with a_store(rows) as store:
        body = get(store, WantedCopy(version=0, format=format_))
        assert contents(body) == expected
        assert (body.size, body.sha256) == (len(expected), hashlib.sha256(expected).hexdigest())
        assert body.whole == body.sha256
        assert body.model_digest == store.load(0).digest


@given(tables())
def test_a_number_in_int8_is_off_by_half_a_step_at_most(pair: tuple[Floats, Floats]) -> None:
    rows = pair[0]
    shape = CopyShape(format=TableFormat.INT8, items=rows.shape[0], width=rows.shape[1])
    decoded = shape.decode(shape.encode(rows))
    assert np.isfinite(decoded).all()
    wrong = np.abs(decoded.astype(np.float64) - rows)
    half = np.abs(rows).max(axis=1, keepdims=True).astype(np.float64) / 254
    assert (wrong <= half * (1 + 1e-6) + 1.5e-36).all()


@FORMATS
def test_large_tables_are_encoded_in_blocks_that_leave_no_trace(format_: TableFormat) -> None:
    random = np.random.default_rng(1)
    rows = random.standard_normal((3001, 700), dtype=np.float32)  # several blocks in either format
    newer = rows.copy()
    newer[[0, 374, 375, 1500, 3000]] += 1
    with a_store(rows, newer) as store:
        shape = shape_of(store, format_)
        assert contents(get(store, WantedCopy(version=0, format=format_))) == shape.encode(rows).tobytes()
        delta = np.frombuffer(contents(get(store, WantedCopy(version=1, format=format_, since=0))), np.uint8)
        numbers, encoded = shape.read_delta(delta)
        assert numbers.tolist() == [0, 374, 375, 1500, 3000]
        assert np.array_equal(encoded, shape.encode(newer[numbers]))


def test_the_dense_part_is_little_endian_float32() -> None:
    with a_store(np.zeros((2, 2), np.float32), dense=3) as store:
        assert contents(get(store, WantedCopy(version=0, format=None))) == struct.pack("<3f", 0, 0, 0)


@settings(deadline=None)
@given(tables(), FORMAT, st.data())
def test_what_is_no_delta_is_refused(pair: tuple[Floats, Floats], format_: TableFormat, data: st.DataObject) -> None:
    rows = pair[0]
    shape = CopyShape(format=format_, items=rows.shape[0], width=rows.shape[1])
    numbers = np.array(data.draw(st.lists(st.integers(0, rows.shape[0]), max_size=4)), dtype=np.int64)
    good = numbers.size == 0 or (bool((np.diff(numbers) > 0).all()) and int(numbers[-1]) < shape.items)
    whole = delta_head(numbers) + bytes(numbers.size * shape.row_bytes)
    if good:
        assert shape.read_delta(np.frombuffer(whole, np.uint8))[0].tolist() == numbers.tolist()
    else:
        with pytest.raises(EncodingError):
            shape.read_delta(np.frombuffer(whole, np.uint8))
    cut = data.draw(st.integers(0, len(whole) - 1))
    with pytest.raises(LengthError):
        shape.read_delta(np.frombuffer(whole[:cut], np.uint8))
    with pytest.raises(MessageError):
        shape.read_delta(np.frombuffer(whole + b"\0", np.uint8))


def test_a_delta_that_is_none_leaves_no_copy_behind(tmp_path: Path) -> None:
    shape = CopyShape(format=TableFormat.INT8, items=3, width=2)
    (tmp_path / "older").write_bytes(bytes(shape.copy_bytes))
    (tmp_path / "change").write_bytes(delta_head(np.array([3])) + bytes(shape.row_bytes))
    with pytest.raises(CopyError):
        apply_delta(tmp_path / "older", tmp_path / "change", tmp_path / "newer", shape)
    assert not (tmp_path / "newer").exists()


def test_a_copy_is_encoded_once_however_many_ask() -> None:
    table = np.ones((5, 2), np.float32)
    with a_store(table, table + 1) as store:
        copies = TableCopies(store, Shape(items=5, width=2, dense=3), in_thread, store.folder)
        delta, full = (
            WantedCopy(version=1, format=TableFormat.INT8, since=0),
            WantedCopy(version=1, format=TableFormat.INT8),
        )

        async def ask() -> list[Body]:
            found = await asyncio.gather(*(copies.get(one) for one in [delta, full] * 10))
            return [*found, await copies.get(full)]

        bodies = asyncio.run(ask())
        assert len(set(map(id, bodies))) == 2
        assert store.loads == 2, "each version is read once, for its copy; the delta comes from the copies"


def test_a_failure_is_not_remembered() -> None:
    table = np.ones((5, 2), np.float32)
    with a_store(table) as store:
        copies = copies_of(store)
        wanted = WantedCopy(version=1, format=TableFormat.FLOAT32)

        async def ask() -> Body:
            with pytest.raises(ModelMissingError):
                await copies.get(wanted)
            store.save(Model(task_id=TASK, version=1, rows=table.copy(), dense=np.zeros(3, np.float32)))
            return await copies.get(wanted)

        assert asyncio.run(ask()).size == 40


def test_copies_are_bounded_and_those_in_use_stay_readable() -> None:
    table = np.ones((5, 2), np.float32)
    with a_store(*(table * version for version in range(20))) as store:
        copies = copies_of(store)

        async def ask() -> Body:
            first = await copies.get(WantedCopy(version=0, format=TableFormat.FLOAT32))
            for version in range(1, 20):
                await copies.get(WantedCopy(version=version, format=TableFormat.FLOAT32))
            assert len(copies._bodies.known()) == 12
            copies.forget_all_but([18, 19])
            assert {one.version for one in copies._bodies.known()} == {18, 19}
            return first

        assert contents(asyncio.run(ask())) == bytes(40)
        assert not [path for path in store.folder.iterdir() if not path.name.startswith("v0")]
