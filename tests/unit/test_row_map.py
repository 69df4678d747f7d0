"""Where the rows of a successor come from."""

import numpy as np
import pytest

from secemb_shared.catalogue import Catalogue
from secemb_shared.errors import EncodingError, LengthError, RowMapError
from secemb_shared.row_map import GONE, MEAN, SEEDED, STARTS, ZERO, RowMap, map_rows

NONE = Catalogue()


def films(*ids: str) -> Catalogue:
    return Catalogue(ids=ids)


def mapped(old: Catalogue, new: Catalogue, start: str = SEEDED) -> RowMap:
    return map_rows(old, new, before=len(old), rows=len(new), start=start)


def test_items_in_both_catalogues_keep_their_rows_wherever_they_are_listed() -> None:
    rows = mapped(films("a", "b", "c", "d"), films("d", "a", "x", "b"), MEAN)
    assert rows.sources.tolist() == [3, 0, -2, 1]
    assert rows.follow().tolist() == [1, 3, GONE, 0]
    assert (rows.kept.tolist(), rows.new(MEAN).tolist(), rows.new(ZERO).tolist(), rows.retired) == (
        [0, 1, 3],
        [2],
        [],
        1,
    )


def test_without_ids_a_row_stays_the_same_item() -> None:
    longer = map_rows(NONE, NONE, before=3, rows=5, start=ZERO)
    assert longer.sources.tolist() == [0, 1, 2, -3, -3]
    shorter = map_rows(NONE, NONE, before=5, rows=3, start=ZERO)
    assert (shorter.sources.tolist(), shorter.retired) == ([0, 1, 2], 2)


@pytest.mark.parametrize(
    ("old", "new", "before", "rows", "start", "fault"),
    [
        (NONE, films("a"), 1, 1, SEEDED, "or neither"),
        (films("a"), NONE, 1, 1, SEEDED, "or neither"),
        (films("a"), films("a"), 2, 1, SEEDED, "of all their items"),
        (films("a"), films("a"), 1, 1, "random", "must start as one of seeded, mean, zero"),
    ],
)
def test_catalogues_that_are_not_those_of_the_tasks_are_refused(
    old: Catalogue, new: Catalogue, before: int, rows: int, start: str, fault: str
) -> None:
    with pytest.raises(RowMapError, match=fault):
        map_rows(old, new, before=before, rows=rows, start=start)


@pytest.mark.parametrize("sources", [[0, 0], [3], [-4], []])
def test_a_row_is_kept_once_and_from_the_predecessor(sources: list[int]) -> None:
    with pytest.raises(RowMapError):
        RowMap(3, np.array(sources, dtype=np.int64))


def random_map(seed: int) -> RowMap:
    random = np.random.default_rng(seed)
    before = int(random.integers(1, 40))
    sources = random.permutation(before)[: random.integers(0, before + 1)]
    if random.random() < 0.5:
        sources = np.sort(sources)
    fresh = random.integers(-3, 0, size=random.integers(not sources.size, 20))
    return RowMap(before, np.concatenate([sources, fresh]) if random.random() < 0.5 else np.append(fresh, sources))


def test_maps_are_decoded_as_they_were_encoded() -> None:
    for seed in range(300):
        rows = random_map(seed)
        found = RowMap.decode(rows.encode(), before=rows.before, rows=len(rows))
        assert (found.before, found.sources.tolist()) == (rows.before, rows.sources.tolist())


def test_a_million_new_items_are_a_few_bytes() -> None:
    rows = map_rows(NONE, NONE, before=1000, rows=1_001_000, start=SEEDED)
    data = rows.encode()
    assert len(data) == 8 + 2 * 9
    assert len(RowMap.decode(data, before=1000, rows=1_001_000).kept) == 1000


def test_every_change_of_a_map_is_refused_or_another_map() -> None:
    rows = mapped(films("a", "b", "c", "d", "e"), films("d", "a", "x", "b", "c", "y", "z"))
    data, refused = rows.encode(), 0
    for place in range(len(data)):
        for bit in range(8):
            changed = bytearray(data)
            changed[place] ^= 1 << bit
            try:
                found = RowMap.decode(bytes(changed), before=5, rows=7)
            except (RowMapError, LengthError, EncodingError):
                refused += 1
            else:
                assert found.digest != rows.digest
                assert found.sources.tolist() != rows.sources.tolist()
    assert refused > 0


@pytest.mark.parametrize(
    ("change", "error"),
    [
        (lambda data: b"", LengthError),
        (lambda data: data[:8], LengthError),
        (lambda data: data[:-1], LengthError),
        (lambda data: data + bytes(9), EncodingError),  # a run of no rows
        (lambda data: data + bytes(900), LengthError),  # more runs than rows
        (lambda data: (9).to_bytes(4, "little") + data[4:], RowMapError),
        (lambda data: data[:9] + (2**32 - 1).to_bytes(4, "little") + data[13:], RowMapError),
        (lambda data: data[:8] + b"\x04" + data[9:], RowMapError),
        # One run written as two.
        (lambda data: data[:9] + b"\1\0\0\0" + data[13:17] + b"\0\1\0\0\0\1\0\0\0" + data[17:], EncodingError),
    ],
)
def test_other_encodings_are_refused(change: object, error: type[Exception]) -> None:
    data = mapped(films("a", "b", "c"), films("a", "b", "x")).encode()
    assert callable(change)
    with pytest.raises(error):
        RowMap.decode(change(data), before=3, rows=3)


def test_the_starts_are_known() -> None:
    assert STARTS == ("seeded", "mean", "zero")
