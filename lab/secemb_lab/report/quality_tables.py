"""The tables of `make quality`, as Markdown."""

from collections.abc import Iterator, Sequence
from statistics import fmean

from secemb_lab.report.published import PAPER_EPOCHS, PAPER_MEGABYTES, RANKED
from secemb_lab.report.quality_goals import Quality, by_case, rankings_by_case, spread
from secemb_lab.report.quality_rankings import RankingRun
from secemb_lab.report.quality_ratings import RatingRun
from secemb_lab.report.report_file import Cells, markdown
from secemb_sdk.models import registry
from secemb_tools.simulation.accuracy import Estimate

_MEGA = 1e6


def ratings_table(runs: Sequence[RatingRun]) -> str:
    """Return matrix factorisation by the rule beside its baselines."""
    heads = (
        *("ratings", "people", "n", "rounds × cohort", "mean", "biases", "MF by the rule", "95 % interval, seed 1"),
        *("at or below biases", "private run, seed 1", "CPU s, plain / private"),
    )
    return markdown(heads, map(_ratings_row, by_case(runs)))


def models_table(runs: Sequence[RatingRun]) -> str:
    """Return each model after the rounds of its bar."""
    heads = (
        *("ratings", "model", "rounds × cohort", "seeds", "RMSE", "95 % interval, seed 1", "trained privately"),
        *("bar", "biases", "paper", "CPU s, plain / private"),
    )
    return markdown(heads, map(_models_row, by_case(runs)))


def bytes_table(runs: Sequence[RatingRun]) -> str:
    """Return what a device moves until the paper's RMSE is reached; empty if there is none for these sets."""
    heads = (
        *("ratings", "model", "paper's RMSE", "rounds to it", "sessions a device", "a session, direct", "relayed"),
        *("a device in all, direct", "relayed", "a session in the paper", f"{PAPER_EPOCHS} sessions in the paper"),
    )
    rows = [_bytes_row(own[0]) for own in by_case(runs) if own[0].paper is not None]
    return markdown(heads, rows) if rows else ""


def rankings_table(found: Quality) -> str:
    """Return rankings of whole catalogues beside popularity, the central model and published figures."""
    heads = (
        *("choices", "how", "n", "rounds × cohort", "seeds", "recall@20", "95 % interval, seed 1", "NDCG@20"),
        *("private rounds, equal bits", "CPU s, plain / private"),
    )
    return markdown(heads, _rankings_rows(found))


def _ratings_row(own: list[RatingRun]) -> Cells:
    first = own[0]
    rmse, biases = fmean(run.rmse.value for run in own), fmean(run.biases for run in own)
    return (
        ", ".join(filter(None, (first.dataset, first.sample))),
        f"{first.people:,}",
        f"{first.interactions:,}",
        f"{first.rounds} × {first.cohort}",
        spread([run.mean for run in own]),
        spread([run.biases for run in own]),
        f"**{spread([run.rmse.value for run in own])}**",
        _interval(first.rmse),
        "yes" if rmse <= biases else "NO",
        _private(first),
        _seconds(own),
    )


def _models_row(own: list[RatingRun]) -> Cells:
    first = own[0]
    return (
        first.dataset,
        registry.find(first.model).title,
        f"{first.rounds} × {first.cohort}",
        ", ".join(str(run.seed) for run in own),
        f"**{spread([run.rmse.value for run in own])}**",
        _interval(first.rmse),
        _private(first),
        "" if first.bar is None else f"{first.bar:.3f}",
        spread([run.biases for run in own]),
        "" if first.paper is None else f"{first.paper:.3f}",
        _seconds(own),
    )


def _bytes_row(run: RatingRun) -> Cells:
    direct, relayed, rounds = sum(run.bytes.direct), sum(run.bytes.relayed), run.rounds_to_paper
    up, down = PAPER_MEGABYTES[run.dataset][run.model]
    sessions = None if rounds is None else rounds * run.cohort / run.people
    return (
        run.dataset,
        registry.find(run.model).title,
        f"{run.paper:.3f}",
        "not reached" if rounds is None else str(rounds),
        "" if sessions is None else f"{sessions:.1f}",
        _megabytes(direct),
        _megabytes(relayed),
        "" if sessions is None else _megabytes(direct * sessions),
        "" if sessions is None else _megabytes(relayed * sessions),
        f"{up + down:.2f} MB",
        f"{PAPER_EPOCHS * (up + down):,.0f} MB",
    )


def _rankings_rows(found: Quality) -> Iterator[Cells]:
    datasets = dict.fromkeys([*(one.dataset for one in found.baselines), *(run.dataset for run in found.rankings)])
    for dataset in datasets:
        for one in (one for one in found.baselines if one.dataset == dataset):
            figures = (f"{one.recall.value:.4f}", _interval(one.recall), f"{one.ndcg.value:.4f}")
            yield dataset, one.name, f"{one.interactions:,}", "", "1", *figures, "", f"{one.cpu_seconds:.3g}"
        for own in rankings_by_case(run for run in found.rankings if run.dataset == dataset):
            first = own[0]
            yield (
                dataset,
                f"**{registry.find(first.model).title}, {first.loss}**",
                f"{first.interactions:,}",
                f"{first.rounds} × {first.cohort}",
                ", ".join(str(run.seed) for run in own),
                f"**{spread([run.recall.value for run in own])}**",
                _interval(first.recall),
                f"**{spread([run.ndcg.value for run in own])}**",
                ", ".join(f"{run.private_rounds}: {_yes(run.same_bits)}" for run in own),
                _seconds(own),
            )
        for name, (recall, ndcg) in RANKED.get(dataset, {}).items():
            yield dataset, f"{name}, published", "", "", "", f"{recall:.3f}", "", f"{ndcg:.3f}", "", ""


def _private(run: RatingRun) -> str:
    equal = "the same bits" if run.same_bits else "OTHER BITS"
    if run.private_rmse is None:
        return f"{run.private_rounds} rounds, {equal}"
    return f"{run.private_rmse:.4f}, {equal}"


def _seconds(own: Sequence[RatingRun | RankingRun]) -> str:
    return f"{fmean(run.cpu_seconds for run in own):.3g} / {own[0].private_cpu_seconds:.3g}"


def _interval(found: Estimate) -> str:
    return "" if found.low is None or found.high is None else f"{found.low:.4f} to {found.high:.4f}"


def _megabytes(count: float) -> str:
    return f"{count / _MEGA:.2f} MB"


def _yes(same: bool) -> str:
    return "yes" if same else "NO"
