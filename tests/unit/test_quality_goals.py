"""The report on quality: goals that follow from the figures, tables that say what was missed, and plots that open."""

from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree

import pytest

from secemb_lab.report.published import BARS, PAPER
from secemb_lab.report.quality_file import FILE
from secemb_lab.report.quality_goals import Quality, goals, spread
from secemb_lab.report.quality_rankings import BaselineRun, RankingRun
from secemb_lab.report.quality_ratings import RatingRun, SessionBytes
from secemb_lab.report.quality_tables import bytes_table, models_table, rankings_table, ratings_table
from secemb_tools.simulation.accuracy import Estimate

RUN = RatingRun(
    dataset="ML100K",
    sample="",
    model="mf",
    seed=1,
    people=943,
    items=1682,
    train=80_000,
    interactions=20_000,
    rounds=100,
    cohort=100,
    rmse=Estimate(0.910, 0.900, 0.920),
    mean=1.125,
    biases=0.940,
    private_rmse=0.910,
    paper=0.944,
    bar=0.912,
    curve=[(5, 0.99), (10, 0.943), (50, 0.92), (100, 0.910)],
    private_rounds=100,
    same_bits=True,
    sessions=9_800,
    clipped=0,
    failed=0,
    cpu_seconds=5.0,
    private_cpu_seconds=22.0,
    bytes=SessionBytes(direct=(60_000, 30_000), relayed=(32_000, 15_500)),
)
RANKED = RankingRun(
    dataset="gowalla",
    split="given",
    model="mf",
    loss="bpr",
    seed=1,
    people=29_858,
    items=40_981,
    train=810_128,
    interactions=217_242,
    k=20,
    rounds=301,
    cohort=497,
    recall=Estimate(0.11, 0.109, 0.111),
    ndcg=Estimate(0.09, 0.089, 0.091),
    curve=[(50, 0.05), (301, 0.11)],
    private_rounds=50,
    same_bits=True,
    cpu_seconds=160.0,
    private_cpu_seconds=200.0,
)
POPULAR = BaselineRun(
    dataset="gowalla",
    name="popularity",
    k=20,
    interactions=217_242,
    recall=Estimate(0.04, 0.039, 0.041),
    ndcg=Estimate(0.03, 0.029, 0.031),
    cpu_seconds=0.0,
)
FOUND = Quality(quick=False, processes=2, ratings=[RUN], models=[RUN], rankings=[RANKED], baselines=[POPULAR])


def rmse(value: float, **changes: object) -> RatingRun:
    return replace(RUN, rmse=Estimate(value, None, None), private_rmse=value, **changes)  # type: ignore[arg-type]


def missed(**changes: object) -> list[str]:
    return [one.name for one in FILE.missed(replace(FOUND, **changes))]  # type: ignore[arg-type]


def test_good_figures_reach_every_goal() -> None:
    assert missed() == []
    assert len(goals(FOUND)) == 6


@pytest.mark.parametrize(("value", "reached"), [(0.9119, True), (0.912, True), (0.9121, False)])
def test_a_model_must_reach_its_bar_plainly_and_privately(value: float, reached: bool) -> None:
    names = [name for name in missed(models=[rmse(value)]) if "after 100 rounds" in name]
    assert len(names) == (0 if reached else 2)


def test_a_private_run_that_misses_the_bar_is_found_beside_a_plain_one_that_reaches_it() -> None:
    assert missed(models=[replace(RUN, private_rmse=0.93)]) == [
        "ML100K: RMSE of mf after 100 rounds, trained privately"
    ]


def test_a_private_run_that_ended_early_is_not_judged_by_the_bar() -> None:
    (goal, *_) = (one for one in goals(replace(FOUND, models=[rmse(0.91)])) if "after" in one.name)
    early = replace(RUN, private_rmse=None, private_rounds=10)
    assert [one for one in goals(replace(FOUND, models=[early])) if "after" in one.name] == [goal]
    assert "10 rounds, the same bits" in models_table([early])


def test_a_bar_is_judged_by_the_mean_over_seeds() -> None:
    assert missed(models=[rmse(0.910), rmse(0.9135, seed=2)]) == []
    assert missed(models=[rmse(0.911), rmse(0.9135, seed=2)]) != []


def test_a_run_above_the_biases_is_found() -> None:
    assert "at most that of biases" in missed(ratings=[rmse(0.9401, sample="5 % of the people")])[0]
    assert "| NO |" in ratings_table([rmse(0.9401)])
    assert "| yes |" in ratings_table([RUN])


def test_rankings_must_reach_recall_and_ndcg_with_the_default_loss() -> None:
    short = replace(RANKED, recall=Estimate(0.099, None, None), ndcg=Estimate(0.084, None, None))
    assert missed(rankings=[short]) == ["gowalla: recall@20", "gowalla: NDCG@20"]
    assert missed(rankings=[replace(short, loss="softmax")]) == []


@pytest.mark.parametrize(
    "changes",
    [
        {"ratings": [replace(RUN, same_bits=False)]},
        {"models": [replace(RUN, same_bits=False)]},
        {"rankings": [replace(RANKED, same_bits=False)]},
        {"rankings": [replace(RANKED, private_rounds=0)]},  # nothing was shown
    ],
)
def test_a_private_run_that_is_not_the_plain_one_is_found(changes: dict[str, object]) -> None:
    assert missed(**changes) == ["private runs that equal the plain run bit for bit"]
    assert missed(ratings=[], models=[], rankings=[RANKED]) == []


def test_seeds_become_a_mean_with_a_standard_deviation() -> None:
    assert spread([0.9]) == "0.9000"
    assert spread([0.9, 0.91, 0.92]) == "0.9100 ± 0.0100"
    assert models_table([RUN, rmse(0.912, seed=2)]).count("\n") == 3
    assert "0.9110 ± 0.0014" in models_table([RUN, rmse(0.912, seed=2)])


def test_bytes_are_counted_until_the_paper_is_reached() -> None:
    """10 rounds of 100 among 943 people are 1.06 sessions of 90 kB directly, 47.5 kB relayed."""
    cells = [cell.strip() for cell in bytes_table([RUN]).splitlines()[-1].split("|")]
    assert cells[3:10] == ["0.944", "10", "1.1", "0.09 MB", "0.05 MB", "0.10 MB", "0.05 MB"]
    assert "not reached" in bytes_table([replace(RUN, curve=[(5, 0.99)])])
    assert bytes_table([replace(RUN, paper=None)]) == ""


def test_rankings_stand_beside_popularity_and_published_figures() -> None:
    rows = [[cell.strip() for cell in line.split("|")[2:4]] for line in rankings_table(FOUND).splitlines()[2:]]
    assert [name for name, _ in rows] == ["popularity", "**MF, bpr**", "BPR-MF, published", "LightGCN, published"]


def test_every_bar_has_a_figure_of_the_paper_that_is_worse() -> None:
    for dataset, bars in BARS.items():
        assert all(rmse < PAPER[dataset][model] for model, (_, rmse) in bars.items())


def test_what_was_written_can_be_read_again_and_plots_open(tmp_path: Path) -> None:
    out = tmp_path / "new" / "quality.json"
    FILE.write(out, FOUND)
    assert FILE.read(out) == FOUND
    names = sorted(file.name for file in out.parent.glob("*.svg"))
    assert names == ["quality-models-ml100k.svg", "quality-rankings-gowalla.svg", "quality-rule-ml100k.svg"]
    page = out.with_suffix(".md").read_text(encoding="utf-8")
    for name in names:
        assert f"]({name})" in page
        texts = ElementTree.parse(out.parent / name).getroot().findall("{*}text")
        assert any((text.text or "").startswith(("biases alone", "popularity")) for text in texts)
