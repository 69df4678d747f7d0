"""docs/paper.md: written from the stored tables and from nothing else, and what is stored can be measured again."""

from pathlib import Path

import pytest

from secemb_lab.paper import markdown, stored_tables
from secemb_lab.paper.compression.reductions import COMPRESSORS, SECEMB, rank_of, reduction, round_of
from secemb_lab.paper.paper_table import Settings, Table, all_tables, unexplained
from secemb_lab.paper.protocols import communication, sparse
from secemb_lab.paper.protocols.cases import Case
from secemb_tools.catalogues import CATALOGUES

DOCS = Path(__file__).parents[2] / "docs"
STORED = {one.table.name: one for one in stored_tables.read(DOCS / "paper.json")}
# Cells that take no time to measure: (table, row, column) is what is stored, and this measures it again.
CASE = Case("mf", CATALOGUES[0])


def again(name: str) -> Table:
    """Measure a table of which every cell is cheap."""
    return all_tables()[name].run(Settings(), lambda share, what: None)


def stored(table: str, row: str, column: str = "ML100K") -> float:
    cell = STORED[table].table.cell(row, column)
    assert cell is not None
    assert isinstance(cell.ours, float | int)
    return cell.ours


def test_the_page_is_written_from_the_stored_tables() -> None:
    """`make paper-docs` writes it; a figure that was typed would differ."""
    assert (DOCS / "paper.md").read_text(encoding="utf-8") == markdown.render(list(STORED.values()))


def test_a_figure_that_was_changed_in_the_page_is_noticed() -> None:
    typed = (DOCS / "paper.md").read_text(encoding="utf-8").replace("0.0894", "0.0794", 1)
    assert typed != markdown.render(list(STORED.values()))


def test_stored_tables_are_of_full_runs_and_explain_every_difference() -> None:
    assert [name for name, one in STORED.items() if one.quick] == []
    assert unexplained(one.table for one in STORED.values()) == []
    assert [name for name in all_tables() if name in STORED] == list(STORED)


@pytest.mark.parametrize("name", ["breakpoint", "protocols", "parameters", "memory"])
def test_a_table_that_takes_no_time_is_what_it_was(name: str) -> None:
    assert again(name).cells == STORED[name].table.cells


def test_bytes_are_what_they_were() -> None:
    sizes, mega = communication.sizes_of(CASE), 1e6
    assert stored("upload", "MF, Secure FedRec") == sizes.whole[0] / mega
    for place, table in enumerate(("upload", "download")):
        assert stored(table, "MF, SecEmb, direct layout") == sizes.direct.direct[place] / mega
        assert stored(table, "MF, SecEmb, binned") == sizes.binned.direct[place] / mega
        assert stored(table, "MF, SecEmb, relayed") == sizes.binned.relayed[place] / mega
    for name, kind in communication.STEPS.items():
        assert stored("ablation", f"MF, {name}") == CASE.device(kind).share() / mega


def test_a_random_message_is_as_long_as_it_was_but_for_chance() -> None:
    assert stored("sparse", "MF, SecAggMask") == pytest.approx(sparse.secaggmask_bytes(CASE) / 1e6, rel=0.01)


def test_ratios_of_compressed_updates_are_what_they_were() -> None:
    for one in CATALOGUES:
        for method in (*COMPRESSORS, SECEMB):
            ours = reduction(method, round_of("mf", one.name), rank=rank_of("mf", one.name))
            assert stored("utility-mf", f"MF / {method}", f"{one.name} R.R.") == ours
