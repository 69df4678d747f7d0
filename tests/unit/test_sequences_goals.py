"""The report on sequences: goals that follow from the figures, tables that say what is what, and plots that open."""

from dataclasses import replace
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from secemb_lab.report.published import SEQUENCE_BARS, SEQUENCE_CENTRAL, SEQUENCE_PAPER
from secemb_lab.report.quality_ratings import SessionBytes
from secemb_lab.report.sequences_cost import CatalogueSize, DeviceCost
from secemb_lab.report.sequences_file import FILE
from secemb_lab.report.sequences_goals import Sequences, goals
from secemb_lab.report.sequences_run import SequenceRun
from secemb_lab.report.sequences_tables import costs_table, rankings_table, runs_table, sizes_table, texts_table


def ranked(hit_rate: float, ndcg: float, **more: Any) -> dict[str, Any]:
    estimates = {"hit_rate": hit_rate, "ndcg": ndcg}
    return {
        "people": 5000,
        **{name: {"value": one, "low": one, "high": one} for name, one in estimates.items()},
        **more,
    }


FINAL = {
    "model": ranked(0.2, 0.11, strangers=None),
    "popularity": ranked(0.035, 0.017, strangers=None),
    "model, 100 strangers": ranked(0.79, 0.55, strangers=100),
    "popularity, 100 strangers": ranked(0.416, 0.225, strangers=100),
}
RUN = SequenceRun(
    name="ml-1m-sasrec",
    dataset="ml-1m",
    model="sasrec",
    seed=1,
    people=6040,
    items=3706,
    events=1_000_209,
    capacity=101,
    cohort=100,
    trained=2416,
    rounds=2899,
    ended="all rounds",
    final=FINAL,
    curve=[(5, 0.4), (1000, 0.8), (2895, 0.9)],
    popular_curve=[(5, 0.4), (1000, 0.6), (2895, 0.6)],
    strangers=33,
    private_wanted=2899,
    private_rounds=2899,
    seconds=7200.0,
    bytes=SessionBytes(direct=(180_000, 160_000), relayed=(150_000, 137_000)),
    update_bytes=900_000,
    device=DeviceCost(cpu_ms={"keys": 2.0, "training": 6.0}, peak_bytes=18_000_000, process_bytes=266_000_000),
    wire={"direct": (181_000, 161_000), "relayed": (151_000, 138_000)},
)
TEXT = replace(
    RUN,
    name="shakespeare-roles-lm",
    dataset="shakespeare-roles",
    curve=[],
    final={
        "model, held-out roles": {"tokens": 9000, "perplexity": {"value": 300.0, "low": 290.0, "high": 310.0}},
        "bigram, held-out roles": {"tokens": 9000, "perplexity": 310.5},
        "model, held-out speeches": {"tokens": 8000, "perplexity": 250.0},
        "bigram, held-out speeches": {"tokens": 8000, "perplexity": 260.0},
    },
)
SIZE = CatalogueSize(
    model="sasrec",
    dimension=50,
    items=9_267_503,
    capacity=101,
    slots=116,
    row_width=51,
    dense_size=28_500,
    bytes=SessionBytes(direct=(250_000, 160_000), relayed=(180_000, 140_000)),
    update_bytes=1_890_000_000,
    keys_ms=2.0,
    words_ms=2000.0,
)
FOUND = Sequences(quick=False, runs=[RUN, TEXT], sizes=[SIZE])


def names(**changes: Any) -> list[str]:
    return [one.name for one in FILE.missed(replace(FOUND, **changes))]


def with_figures(hit_rate: float, ndcg: float) -> SequenceRun:
    return replace(RUN, final=FINAL | {"model, 100 strangers": ranked(hit_rate, ndcg)})


def test_good_figures_reach_every_goal() -> None:
    assert names() == []
    assert len(goals(FOUND)) == 2 + 2 + 1


@pytest.mark.parametrize(
    ("hit_rate", "ndcg", "wrong"),
    [(0.78, 0.54, []), (0.7799, 0.54, ["HR@10"]), (0.78, 0.5399, ["NDCG@10"]), (0.5, 0.3, ["HR@10", "NDCG@10"])],
)
def test_a_model_must_reach_both_figures_among_a_hundred_strangers(
    hit_rate: float, ndcg: float, wrong: list[str]
) -> None:
    found = names(runs=[with_figures(hit_rate, ndcg)])
    assert found == [f"ml-1m-sasrec: {one} among 100 strangers" for one in wrong]


def test_figures_of_the_whole_catalogue_are_not_taken_for_those_among_strangers() -> None:
    only = {"model": FINAL["model, 100 strangers"], "popularity": FINAL["popularity"]}
    assert len(names(runs=[replace(RUN, final=only)])) == 2


def test_the_perplexity_must_be_below_that_of_bigrams_on_each_part() -> None:
    worse = TEXT.final | {"model, held-out speeches": {"perplexity": 260.0}}
    assert names(runs=[replace(TEXT, final=worse)]) == [
        "shakespeare-roles-lm, held-out speeches: perplexity below the bigrams'"
    ]


@pytest.mark.parametrize(
    "changes",
    [
        {"private_rounds": 2898},
        {"private_rounds": 59, "private_wanted": 60},
        {"private_rounds": 0, "private_wanted": 0},
    ],
)
def test_a_private_run_that_differs_or_ends_early_is_found(changes: dict[str, Any]) -> None:
    assert names(runs=[replace(RUN, **changes)]) == ["private runs that equal the plain run bit for bit"]


def cells(table: str, line: int) -> list[str]:
    return [cell.strip() for cell in table.splitlines()[line].split("|")[1:-1]]


def test_both_kinds_of_figures_stand_beside_popularity_and_published_ones() -> None:
    table = rankings_table([RUN, TEXT])
    rows = [cells(table, line)[1:] for line in range(2, len(table.splitlines()))]
    assert rows == [
        ["popularity", "100 strangers", "5,000", "0.416", "0.225"],
        ["**SASRec**", "100 strangers", "5,000", "0.790", "0.550"],
        ["popularity", "the whole catalogue", "5,000", "0.035", "0.017"],
        ["**SASRec**", "the whole catalogue", "5,000", "0.200", "0.110"],
        ["SASRec, others, not private", "100 strangers", "", "0.820", "0.590"],
        ["SASRec, the paper", "not stated", "", "0.472", "0.268"],
    ]


def test_reductions_are_of_two_shares_by_what_a_device_sends() -> None:
    assert RUN.reductions == (10.0, 12.0)
    assert cells(costs_table([RUN]), 2)[-3:] == ["1.80 MB", "10.0", "12.0"]
    assert cells(sizes_table([SIZE]), 2)[7:11] == ["3,780 MB", "**15,120**", "**21,000**", "2,342"]


def test_tables_say_what_was_compared_and_what_differed() -> None:
    assert "2,899 of 2,899: yes" in runs_table([RUN])
    assert "59 of 60: NO" in runs_table([replace(RUN, private_rounds=59, private_wanted=60)])
    assert cells(texts_table([RUN, TEXT]), 2)[1:] == ["held-out roles", "SASRec", "**300.0**", "310.5"]
    assert (texts_table([RUN]), rankings_table([TEXT])) == ("", "")


def test_what_was_written_can_be_read_again_and_plots_open(tmp_path: Path) -> None:
    out = tmp_path / "new" / "sequences.json"
    FILE.write(out, FOUND)
    assert FILE.read(out) == FOUND
    (picture,) = out.parent.glob("*.svg")
    assert picture.name == "sequences-ml-1m-sasrec.svg"
    texts = [one.text or "" for one in ElementTree.parse(picture).getroot().iter() if one.tag.endswith("text")]
    assert {"model, 33", "popularity, 33", "model at the end", "popularity at the end", "paper"} <= set(texts)
    page = out.with_suffix(".md").read_text(encoding="utf-8")
    assert f"]({picture.name})" in page
    words = " ".join(page.split())
    assert "(sasrec 0.472 / 0.268) are barely above popularity among 100 strangers (0.416 / 0.225)" in words
    assert words.count("barely above") == 1
    assert "| bigram, held-out roles | 9,000 | 310.50 |" in page


def test_every_goal_is_between_the_paper_or_less_and_what_others_reach_without_privacy() -> None:
    for dataset, bars in SEQUENCE_BARS.items():
        assert bars.keys() == SEQUENCE_PAPER[dataset].keys() == SEQUENCE_CENTRAL[dataset].keys()
        for model, bar in bars.items():
            assert all(one < other for one, other in zip(bar, SEQUENCE_CENTRAL[dataset][model], strict=True))
