"""Ranking on the device: the best are the best, ties fall by number, and a copy in int8 ranks nearly alike."""

from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from secemb_sdk.models import MatrixFactorisation
from secemb_sdk.models.interface import Floats, Gradients, Ratings
from secemb_sdk.recommend.copy import TableCopy
from secemb_sdk.recommend.rank import best, block_rows, recommend, score
from secemb_shared.messages.table import CopyShape, TableFormat
from secemb_shared.randomness import Indices

NO_DENSE = np.zeros(0, dtype=np.float32)
MF = MatrixFactorisation(dimension=64)


@dataclass(frozen=True)
class First:
    """A model whose score of an item is the first number of its row."""

    row_width: int
    dense_size: int = 0
    private_size: int = 1

    def first_private(self, random: np.random.Generator) -> Floats:
        return random.standard_normal(1, dtype=np.float32)

    def gradients(self, rows: Floats, dense: Floats, private: Floats, ratings: Ratings) -> Gradients:
        raise NotImplementedError

    def scores(self, rows: Floats, dense: Floats, private: Floats, items: Indices) -> Floats:
        assert rows.shape == (block_rows(self.row_width), self.row_width), "always the same shape"
        scores: Floats = rows[:, 0]
        return scores


def a_copy(folder: Path | str, rows: Floats, format_: TableFormat = TableFormat.FLOAT32) -> TableCopy:
    shape = CopyShape(format=format_, items=rows.shape[0], width=rows.shape[1])
    path = Path(folder) / f"copy.{format_}"
    path.write_bytes(shape.encode(rows).tobytes())
    return TableCopy(path=path, shape=shape, version=0, sha256="")


def by_hand(scores: Floats, k: int, exclude: set[int]) -> list[int]:
    order = sorted((-float(value), item) for item, value in enumerate(scores) if item not in exclude)
    return [item for _, item in order[:k]]


@settings(deadline=None)
@given(st.data())
def test_the_best_of_a_catalogue_in_many_blocks_are_those_of_a_plain_sort(data: st.DataObject) -> None:
    width = 2**14  # a block has 16 rows
    items = data.draw(st.integers(1, 70))
    values = data.draw(st.lists(st.sampled_from([0.0, -0.0, 1.0, 2.0, -3.0]), min_size=items, max_size=items))
    exclude = data.draw(st.sets(st.integers(0, items - 1)))
    k = data.draw(st.integers(1, 80))
    rows = np.zeros((items, width), dtype=np.float32)
    rows[:, 0] = values
    with TemporaryDirectory() as folder:
        found = recommend(
            First(width),
            a_copy(folder, rows),
            private=np.zeros(1, np.float32),
            dense=NO_DENSE,
            k=k,
            exclude=np.array(sorted(exclude), dtype=np.int64),
        )
    assert [item for item, _ in found] == by_hand(rows[:, 0], k, exclude)
    assert [value for _, value in found] == [values[item] for item, _ in found]


@given(st.lists(st.floats(width=32, allow_nan=False), min_size=1, max_size=40), st.integers(1, 50))
def test_the_order_in_which_items_come_does_not_matter(values: list[float], k: int) -> None:
    items, scores = np.arange(len(values)), np.array(values, dtype=np.float32)
    shuffled = np.random.default_rng(len(values)).permutation(len(values))
    one, other = best(items, scores, k), best(items[shuffled], scores[shuffled], k)
    assert one[0].tolist() == other[0].tolist() == by_hand(scores, k, set())


def test_what_a_model_cannot_score_comes_last() -> None:
    items, scores = np.arange(4), np.array([np.nan, 1, -5, 2], dtype=np.float32)
    assert best(items, scores, 4)[0].tolist() == [3, 1, 2, 0]
    assert best(items, scores, 2)[0].tolist() == [3, 1]


def test_asking_for_nothing_is_a_mistake(tmp_path: Path) -> None:
    copy = a_copy(tmp_path, np.zeros((3, 2), np.float32))
    with pytest.raises(ValueError, match="at least 1"):
        recommend(First(2), copy, private=np.zeros(1, np.float32), dense=NO_DENSE, k=0)


def test_an_item_has_one_score_in_whatever_company_it_is_asked_for() -> None:
    random = np.random.default_rng(0)
    rows = random.standard_normal((9000, MF.row_width), dtype=np.float32)
    private = random.standard_normal(MF.private_size, dtype=np.float32)
    step = block_rows(MF.row_width)
    everything = np.arange(len(rows))
    blocks = [everything[first : first + step] for first in range(0, len(rows), step)]
    alone = np.concatenate([score(MF, block, rows[block], dense=NO_DENSE, private=private) for block in blocks])
    for count in (1, 2, 3, 7, 20, 1000):
        some = random.choice(everything, count, replace=False)
        assert np.array_equal(score(MF, some, rows[some], dense=NO_DENSE, private=private), alone[some])


def test_int8_ranks_nearly_as_float32_does(tmp_path: Path) -> None:
    random = np.random.default_rng(7)
    rows = random.standard_normal((20_000, MF.row_width), dtype=np.float32) * np.float32(0.3)
    exact, small = (a_copy(tmp_path, rows, format_) for format_ in (TableFormat.FLOAT32, TableFormat.INT8))
    shared = 0
    for _ in range(20):
        private = random.standard_normal(MF.private_size, dtype=np.float32)
        tops = [recommend(MF, copy, private=private, dense=NO_DENSE, k=10) for copy in (exact, small)]
        shared += len({item for item, _ in tops[0]} & {item for item, _ in tops[1]})
        assert tops[0][0][1] == pytest.approx(tops[1][0][1], abs=0.15)
    assert shared >= 190, f"of 200 places, {shared} are the same"


def test_rows_are_looked_at_in_place(tmp_path: Path) -> None:
    rows = np.arange(12, dtype=np.float32).reshape(4, 3)
    copy = a_copy(tmp_path, rows)
    assert isinstance(copy.encoded, np.memmap)
    assert np.array_equal(copy.rows(np.array([3, 0])), rows[[3, 0]])
    assert "copy." not in repr(copy)
