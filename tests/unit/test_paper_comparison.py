"""What the table of protocols says: every mark has a test, and the tests that exist for it alone."""

import inspect
from types import ModuleType

import numpy as np
import pytest
from tests.unit.sessions import make_round, make_task

from secemb_lab.constructions import FullMatrix
from secemb_lab.paper.compression import low_rank, quantisers
from secemb_lab.paper.compression.compressor import Compressor
from secemb_lab.paper.compression.low_rank import CoLR, Svd
from secemb_lab.paper.compression.quantisers import Bit8Quant, TernQuant
from secemb_lab.paper.printed import tables
from secemb_lab.paper.protocols import kvsagg, protocol_marks, secaggmask, topksecagg
from secemb_lab.paper.protocols.protocol_marks import MARKS, Mark, missing_tests
from secemb_lab.party_round import PartyRound, agree
from secemb_sdk.round.session import SESSION_SEED_BYTES, DeviceSession, SeededBytes
from secemb_shared import row_access
from secemb_shared.dpf import RingArray, default_backend
from secemb_shared.messages import Sizes

ITEMS, WIDTH, OWN = 3000, 8, 20
ROUND = make_round(make_task(items=ITEMS, capacity=OWN, row_width=WIDTH, dense_size=0, tables=4, bins=8, min_cohort=2))
RANDOM = np.random.default_rng(1)


def own_items(count: int = OWN) -> "np.ndarray[tuple[int], np.dtype[np.int64]]":
    return np.sort(RANDOM.choice(ITEMS, count, replace=False)).astype(np.int64)


def test_every_mark_of_the_papers_table_has_a_test_that_exists() -> None:
    paper = tables()["tab:compfl"]
    assert MARKS.keys() == {(row, column) for row in paper["rows"] for column in paper["columns"]}
    assert missing_tests() == []


def test_a_test_that_was_renamed_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    renamed = "unit/test_paper_leaks.py::test_secaggmask_shows_nothing"
    monkeypatch.setitem(protocol_marks.MARKS, ("SecAggMask", protocol_marks.SECURE), Mark(protocol_marks.NO, renamed))
    assert missing_tests() == [renamed]


def full_matrix() -> tuple[FullMatrix, RingArray]:
    scheme = FullMatrix(ROUND, default_backend())
    return scheme, row_access.tag_rows(ROUND, RANDOM.normal(size=(ITEMS, WIDTH)).astype(np.float32))


def test_a_device_of_secure_fedrec_downloads_the_whole_table() -> None:
    scheme, tagged = full_matrix()
    answers = [scheme.answer(party, bytes(16), b"", tagged) for party in (0, 1)]
    assert sum(map(len, answers)) == 4 * ITEMS * WIDTH


def test_a_device_of_secure_fedrec_uploads_two_whole_shares() -> None:
    scheme, _ = full_matrix()
    placement = ROUND.layout.place(own_items())
    payload: RingArray = np.zeros((ROUND.task.geometry.slots, WIDTH), np.uint32)
    assert [len(one) for one in scheme.write(scheme.ask(placement), payload)] == [4 * ITEMS * WIDTH] * 2


@pytest.mark.parametrize("protocol", [secaggmask, topksecagg, kvsagg, low_rank, quantisers])
def test_a_protocol_that_answers_no_reads_leaves_the_whole_model_to_download(protocol: ModuleType) -> None:
    """Nothing in it is told which rows a device wants, and nothing returns rows: what it moves are updates."""
    classes = [one for _, one in inspect.getmembers(protocol, inspect.isclass) if one.__module__ == protocol.__name__]
    names = set(dir(protocol)).union(*map(dir, classes))
    assert not {"answer", "ask", "download"} & names


def test_sparse_protocols_upload_less_than_the_update() -> None:
    """Of ten users; the paper compares with two shares of the whole update."""
    items = [own_items() for _ in range(10)]
    vectors: list[RingArray] = []
    for some in items:
        update: RingArray = np.zeros((ITEMS, WIDTH), np.uint32)
        update[some] = 5
        vectors.append(update.reshape(-1))
    whole, union = 2 * 4 * ITEMS * WIDTH, len(np.unique(np.concatenate(items)))
    assert max(map(len, secaggmask.run(vectors).messages)) < whole / 2
    names = [topksecagg.name(one, catalogue=ITEMS) for one in items]
    rows = topksecagg.union_of(names).size
    assert max(topksecagg.upload_bytes(one, rows=rows, width=WIDTH) for one in names) < whole / 2
    table = kvsagg.encode(items[0], np.ones((OWN, WIDTH), np.uint32), part=kvsagg.part_of(union), salt=1)
    assert table.nbytes < whole / 2


@pytest.mark.parametrize("one", [Bit8Quant(), TernQuant(), Svd(2), CoLR(2)], ids=lambda one: type(one).__name__)
def test_compressed_updates_are_shorter_than_the_update(one: Compressor) -> None:
    update = np.zeros((ITEMS, WIDTH), np.float32)
    update[own_items()] = RANDOM.normal(size=(OWN, WIDTH))
    message = one.compress(ROUND, update, SeededBytes(bytes(SESSION_SEED_BYTES)))
    assert len(message) < update.nbytes / 2


def test_a_device_of_secemb_moves_less_than_the_table_in_both_directions() -> None:
    sizes = Sizes.of(ROUND.task)
    assert max(sizes.upload, sizes.download) < 4 * ITEMS * WIDTH
    assert max(sizes.relayed_upload, sizes.relayed_download) < max(sizes.upload, sizes.download)


def test_a_device_of_secemb_trains_on_its_own_rows_alone() -> None:
    table, items = RANDOM.normal(size=(ITEMS, WIDTH)).astype(np.float32), own_items()
    session = DeviceSession(ROUND, items)
    parties = [PartyRound(ROUND, party, table) for party in (0, 1)]
    first, second = (one.keys(session.session_id, keys) for one, keys in zip(parties, session.keys, strict=True))
    read, rows = session.read((first, second))
    assert set(read.tolist()) <= set(items.tolist())
    assert rows.shape == (read.size, WIDTH)
    assert len(first) + len(second) < table.nbytes
    session.write(read, np.ones_like(rows, np.float64), np.zeros(0))  # nothing else is needed


def test_the_sum_of_secemb_is_exact() -> None:
    table = RANDOM.normal(size=(ITEMS, WIDTH)).astype(np.float32)
    parties, expected = [PartyRound(ROUND, party, table) for party in (0, 1)], np.zeros((ITEMS, WIDTH), np.int64)
    for _ in range(3):
        session = DeviceSession(ROUND, own_items())
        answers = [one.keys(session.session_id, keys) for one, keys in zip(parties, session.keys, strict=True)]
        read, _ = session.read((answers[0], answers[1]))
        steps = RANDOM.integers(-1000, 1000, (read.size, WIDTH))
        for party, update in zip(
            parties, session.write(read, steps / 2.0**ROUND.task.fraction_bits, np.zeros(0)), strict=True
        ):
            party.update(session.session_id, update)
        expected[read] += steps
    shares = [one.share(agree(*parties)) for one in parties]
    total: RingArray = shares[0].rows + shares[1].rows
    assert np.array_equal(total.view(np.int32), expected)
