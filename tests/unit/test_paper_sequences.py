"""The table of sequences: a short run of the whole table, and its ratios over all of Amazon."""

from pathlib import Path

import pytest

from secemb_lab.paper.compression import sequence_table
from secemb_lab.paper.compression.full_shares import SecureFedRec
from secemb_lab.paper.compression.low_rank import CoLR
from secemb_lab.paper.compression.quantisers import Bit8Quant
from secemb_lab.paper.compression.reductions import SECEMB
from secemb_lab.paper.paper_table import Settings, Table, unexplained


def no_progress(share: float, what: str) -> None:
    assert 0 < share <= 1, what


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Table:
    folder = tmp_path_factory.mktemp("sequences")
    body = sequence_table.make("caser", Settings(quick=True, seeds=1, folder=folder, data=Path("nowhere")), no_progress)
    return Table(name="sequences-caser", title="Sequences", caption=body.caption, cells=body.cells)


def ours(table: Table, method: str, column: str) -> float:
    cell = table.cell(f"Caser / {method}", column)
    assert cell is not None
    assert isinstance(cell.ours, float | int)
    return cell.ours


def test_a_short_run_of_sequences_explains_every_difference(made: Table) -> None:
    assert unexplained([made]) == []


def test_secure_fedrec_ranks_what_comes_next_exactly_as_secemb_does(made: Table) -> None:
    for column in ("ML1M HR@10", "ML1M NDCG@10"):
        assert ours(made, SecureFedRec.name, column) == ours(made, SECEMB, column)
    assert ours(made, CoLR.name, "ML1M NDCG@10") != ours(made, SECEMB, "ML1M NDCG@10")


def test_over_all_of_amazon_secemb_sends_a_thousandth_and_eight_bits_a_quarter(made: Table) -> None:
    assert ours(made, SECEMB, "Amazon R.R.") > 1000
    assert ours(made, Bit8Quant.name, "Amazon R.R.") == pytest.approx(4, rel=0.001)
