"""The frame of the report on the paper: verdicts, sentences that differences need, files, page and document."""

import re
from dataclasses import replace
from pathlib import Path

import pytest

from secemb_lab.bench.report import describe_machine
from secemb_lab.paper import cell_text, markdown, page, stored_tables
from secemb_lab.paper.paper_table import Cell, Plot, Table, Verdict, all_tables, unexplained
from secemb_lab.paper.stored_tables import Measured, merged
from secemb_tools.errors import OperationError

BETTER = Cell(row="MF", column="ML1M", ours=0.24, paper=0.27, unit="MB", better="less")
WORSE = replace(BETTER, column="Yelp", ours=0.9, note="Everything was sent twice here.")
MISSING = Cell(row="MF", column="ML25M", ours=None, paper=0.5, unit="MB", note="The set is not in the folder of sets.")
ALONE = Cell(row="MF, relayed", column="ML1M", ours=0.13, unit="MB")
PLOT = Plot(title="upload & items", across="items", lines={"MF": [(1.0, 2.0), (3.0, 4.0)]})
TABLE = Table(
    name="upload", title="Upload <MB>", caption="Bytes.", cells=[BETTER, WORSE, MISSING, ALONE], plots=[PLOT], seconds=3
)
MEASURED = Measured(table=TABLE, machine=describe_machine(), quick=False, seeds=4)


@pytest.mark.parametrize(
    ("ours", "paper", "better", "verdict"),
    [
        (1.04, 1.0, "less", Verdict.AGREES),
        (0.96, 1.0, "less", Verdict.AGREES),
        (0.9, 1.0, "less", Verdict.BETTER),
        (0.9, 1.0, "more", Verdict.DIFFERS),
        (1.1, 1.0, "more", Verdict.BETTER),
        (1.1, 1.0, "less", Verdict.DIFFERS),
        (0.9, 1.0, "", Verdict.DIFFERS),  # nobody wants a baseline to be better
        (1.0, None, "less", Verdict.OURS_ALONE),
        (None, 1.0, "less", Verdict.NO_DATA),
        (None, None, "", Verdict.NO_DATA),
        ("yes", "yes", "", Verdict.AGREES),
        ("no", "yes", "", Verdict.DIFFERS),
        (0.0, 0.0, "", Verdict.AGREES),
    ],
)
def test_a_cell_is_better_agrees_or_differs(ours: float, paper: float, better: str, verdict: Verdict) -> None:
    assert Cell(row="", column="", ours=ours, paper=paper, better=better).verdict is verdict  # type: ignore[arg-type]


@pytest.mark.parametrize("note", ["", "it differs", "so it is.", "no full stop at the end of this"])
def test_a_difference_and_missing_data_need_a_sentence(note: str) -> None:
    bare = replace(TABLE, cells=[replace(one, note=note) for one in TABLE.cells])
    assert unexplained([TABLE]) == []
    assert unexplained([bare]) == ["upload: MF, Yelp", "upload: MF, ML25M"]


def test_what_was_written_can_be_read_again(tmp_path: Path) -> None:
    file = tmp_path / "new" / "paper.json"
    assert stored_tables.read(file) == []
    stored_tables.write(file, [MEASURED, replace(MEASURED, table=replace(TABLE, name="download", cells=[], plots=[]))])
    first, second = stored_tables.read(file)
    assert (first.table.cells, first.table.seconds, first.machine) == (TABLE.cells, 3, MEASURED.machine)
    assert [list(points) for points in first.table.plots[0].lines.values()] == [[(1.0, 2.0), (3.0, 4.0)]]
    assert (second.table.name, second.table.cells) == ("download", [])


@pytest.mark.parametrize("content", ["", "{}", '{"tables": [{}]}'])
def test_a_file_of_something_else_is_refused(tmp_path: Path, content: str) -> None:
    file = tmp_path / "paper.json"
    file.write_text(content)
    with pytest.raises(OperationError, match="does not hold tables of the paper"):
        stored_tables.read(file)


def test_a_later_table_replaces_an_earlier_one_in_the_order_of_the_report() -> None:
    other = replace(MEASURED, table=replace(TABLE, name="download"))
    later = replace(MEASURED, seeds=1)
    assert merged([other, MEASURED], [later], ["upload", "download", "nothing"]) == [later, other]


def test_the_page_shows_every_figure_without_anything_from_elsewhere() -> None:
    shown = page.render([MEASURED])
    assert "Upload &lt;MB&gt;" in shown
    assert "upload &amp; items" in shown
    for text in ("0.24", "0.27", "0.89×", "Everything was sent twice here.", "no data here", "0.13"):
        assert text in shown
    assert "color-scheme: light dark" in shown
    assert 'name="viewport"' in shown
    assert not re.search(r"<script|<link|src=|url\(|https?://(?!www\.w3\.org)", shown)


def test_the_document_has_a_row_for_each_row_and_wraps_its_prose() -> None:
    shown = markdown.render([MEASURED])
    assert "| MB | ML1M | Yelp | ML25M |" in shown
    assert "| MF | 0.24 / 0.27 0.89× ▲ | 0.9 / 0.27 3.3× ≠ | no data here (paper 0.5) |" in shown
    assert "- MF (Yelp): Everything was sent twice here." in shown
    assert all(len(line) <= 100 for line in shown.splitlines() if not line.startswith("|"))


def test_figures_have_three_digits() -> None:
    assert [cell_text.figure(one) for one in (0.01234, 12.34, 123456.7, 4.0, None, "yes")] == [
        "0.0123",
        "12.3",
        "123,457",
        "4",
        "-",
        "yes",
    ]


def test_the_document_says_how_long_each_table_takes_in_full() -> None:
    shown = " ".join(markdown.render([MEASURED]).split())
    assert "On two idle cores a full run takes about" in shown
    for name, one in all_tables().items():
        told = "under a minute" if one.night_seconds < 60 else r"[\d.]+ (min|h)"
        assert re.search(rf"[:,] {name} {told}[,.]", shown), name
