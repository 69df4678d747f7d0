"""The table of utility: trainings that are kept, ratios beside the paper's, and a short run of the whole table."""

import json
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from secemb_lab.paper.compression import stored_cases, utility
from secemb_lab.paper.compression.full_shares import SecureFedRec
from secemb_lab.paper.compression.low_rank import CoLR, Svd
from secemb_lab.paper.compression.quantisers import Bit8Quant
from secemb_lab.paper.compression.rating_case import FOLDERS
from secemb_lab.paper.compression.reductions import MODELS, SECEMB, rank_of, reduction, round_of, title_of
from secemb_lab.paper.compression.stored_cases import Figures, finish
from secemb_lab.paper.paper_table import Settings, Table, unexplained
from secemb_lab.paper.printed import printed

measured: list[str] = []


@dataclass(frozen=True, slots=True, kw_only=True)
class Toy:
    """A case that writes down when it is measured."""

    name: str
    value: float = 1.0
    weight: float = 1.0

    def measure(self) -> Figures:
        measured.append(self.name)
        return {"value": self.value}


def no_progress(share: float, what: str) -> None:
    assert 0 < share <= 1, what


def test_a_finished_case_is_not_trained_again_and_one_with_other_settings_is(tmp_path: Path) -> None:
    measured.clear()
    cases = [Toy(name="a"), Toy(name="b", value=2.0)]
    assert finish(cases, tmp_path, no_progress, processes=1) == [{"value": 1.0}, {"value": 2.0}]
    assert finish(cases, tmp_path, no_progress, processes=1) == [{"value": 1.0}, {"value": 2.0}]
    assert measured == ["a", "b"]
    changed = [replace(cases[0], value=3.0), cases[1]]
    assert finish(changed, tmp_path, no_progress, processes=1) == [{"value": 3.0}, {"value": 2.0}]
    assert measured == ["a", "b", "a"]


@pytest.mark.parametrize("damage", ["", "{", "[]", json.dumps({"case": repr(Toy(name="a")), "figures": 1})])
def test_a_damaged_file_is_measured_again(tmp_path: Path, damage: str) -> None:
    finish([Toy(name="a")], tmp_path, no_progress)
    (tmp_path / stored_cases.FOLDER / "a.json").write_text(damage)
    assert finish([Toy(name="a")], tmp_path, no_progress) == [{"value": 1.0}]


def test_cases_on_several_cores_come_back_in_their_order(tmp_path: Path) -> None:
    cases = [Toy(name=name, value=number) for number, name in enumerate("abcd")]
    assert finish(cases, tmp_path, no_progress, processes=2) == [{"value": float(number)} for number in range(4)]


@pytest.mark.parametrize("method", [Bit8Quant.name, Svd.name, CoLR.name])
@pytest.mark.parametrize("model", MODELS)
def test_ratios_of_compressors_are_the_papers_on_every_set(model: str, method: str) -> None:
    """Sizes, ranks and what a message holds are then the paper's own."""
    for catalogue in FOLDERS:
        ours = reduction(method, round_of(model, catalogue), rank=rank_of(model, catalogue))
        papers = printed(utility.LABEL, f"{title_of(model)} / {method}", f"{catalogue} R.R.")
        assert ours == pytest.approx(papers, rel=0.006)


def test_a_short_run_of_the_table_explains_every_difference(tmp_path: Path) -> None:
    body = utility.make("mf", Settings(quick=True, seeds=1, folder=tmp_path), no_progress)
    table = Table(name="utility", title="Utility", caption=body.caption, cells=body.cells)
    assert unexplained([table]) == []
    errors = {name: table.cell(f"MF / {name}", "ML100K RMSE") for name in (SECEMB, SecureFedRec.name, CoLR.name)}
    values = {name: cell.ours for name, cell in errors.items() if cell is not None}
    # Nobody has more ratings than m' here: what loses nothing is then the same to the last bit.
    assert values[SECEMB] == values[SecureFedRec.name] != values[CoLR.name]
    missing = table.cell("MF / SecEmb", "ML25M RMSE")
    assert missing is not None
    assert missing.ours is None
