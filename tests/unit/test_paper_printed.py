"""The paper's own figures: what is in the file is what the paper's source prints."""

import json
from pathlib import Path

import pytest
from tests.unit.paper_source import LABELS, read

from secemb_lab.paper.printed import printed, printed_spread, tables

SOURCE = Path(__file__).parents[2] / ".." / "shared" / "paper.tex"


def test_a_mean_is_read_without_its_deviation() -> None:
    assert printed("tab:utility", "NCF / SecEmb", "ML100K RMSE") == 0.949
    assert printed_spread("tab:utility", "NCF / SecEmb", "ML100K RMSE") == 0.014
    assert printed("tab:utility", "NCF / SecEmb", "ML100K R.R.") == 3.44
    assert printed_spread("tab:utility", "NCF / SecEmb", "ML100K R.R.") is None


def test_every_row_has_a_figure_for_every_column() -> None:
    assert all(len(row) == len(one["columns"]) for one in tables().values() for row in one["rows"].values())


@pytest.mark.parametrize("label", LABELS)
def test_the_figures_are_those_of_the_papers_source(label: str) -> None:
    if not SOURCE.is_file():
        pytest.skip("the paper's source is not beside this repository (../shared/paper.tex)")
    assert json.loads(json.dumps(dict(read(SOURCE.read_text(encoding="utf-8"), label)))) == tables()[label]["rows"]
