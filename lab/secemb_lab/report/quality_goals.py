"""The goals of `make quality`, and the aggregation of runs that differ only in their seed."""

from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from statistics import fmean, stdev
from typing import TypeVar

from secemb_lab.report.published import RANKING_BARS
from secemb_lab.report.quality_rankings import BaselineRun, RankingRun
from secemb_lab.report.quality_ratings import RatingRun
from secemb_lab.report.report_file import Goal
from secemb_shared.messages.spec import BPR

One = TypeVar("One")


@dataclass(slots=True, kw_only=True)
class Quality:
    """All measurements."""

    quick: bool  # made-up data: figures only show that it runs
    processes: int  # runs at a time
    seconds: float = 0.0
    ratings: list[RatingRun] = field(default_factory=list)  # matrix factorisation by the rule
    models: list[RatingRun] = field(default_factory=list)  # each model for the rounds of its bar
    rankings: list[RankingRun] = field(default_factory=list)
    baselines: list[BaselineRun] = field(default_factory=list)  # of the rankings


def goals(found: Quality) -> list[Goal]:
    """Return every goal that something was measured for; figures are means over the seeds."""
    return [*_rule_goals(found.ratings), *_bar_goals(found.models), *_ranking_goals(found.rankings), *_bit_goals(found)]


def grouped(runs: Iterable[One], key: Callable[[One], Hashable]) -> list[list[One]]:
    """Return runs with the same key together, in the order in which keys first occur."""
    groups: dict[Hashable, list[One]] = {}
    for run in runs:
        groups.setdefault(key(run), []).append(run)
    return list(groups.values())


def by_case(runs: Iterable[RatingRun]) -> list[list[RatingRun]]:
    """Return runs that differ only in their seed together."""
    return grouped(runs, lambda run: (run.dataset, run.sample, run.model))


def rankings_by_case(runs: Iterable[RankingRun]) -> list[list[RankingRun]]:
    """Return runs that differ only in their seed together."""
    return grouped(runs, lambda run: (run.dataset, run.model, run.loss))


def spread(values: Sequence[float], digits: int = 4) -> str:
    """Return mean ± standard deviation; one value has none."""
    return f"{fmean(values):.{digits}f}" + (f" ± {stdev(values):.{digits}f}" if len(values) > 1 else "")


def _rule_goals(runs: list[RatingRun]) -> Iterator[Goal]:
    for own in by_case(runs):
        name = ", ".join(filter(None, (own[0].dataset, own[0].sample)))
        measured, biases = fmean(run.rmse.value for run in own), fmean(run.biases for run in own)
        yield Goal.at_most(f"{name}: RMSE of MF by the rule, at most that of biases", measured, biases)


def _bar_goals(runs: list[RatingRun]) -> Iterator[Goal]:
    for own in by_case(runs):
        first = own[0]
        if first.bar is not None:
            name = f"{first.dataset}: RMSE of {first.model} after {first.rounds} rounds"
            yield Goal.at_most(name, fmean(run.rmse.value for run in own), first.bar)
            if private := [run.private_rmse for run in own if run.private_rmse is not None]:
                yield Goal.at_most(f"{name}, trained privately", fmean(private), first.bar)


def _ranking_goals(runs: list[RankingRun]) -> Iterator[Goal]:
    for own in rankings_by_case(runs):
        first = own[0]
        if first.dataset in RANKING_BARS and (first.model, first.loss) == ("mf", BPR):
            recall, ndcg = RANKING_BARS[first.dataset]
            yield Goal.at_least(f"{first.dataset}: recall@{first.k}", fmean(run.recall.value for run in own), recall)
            yield Goal.at_least(f"{first.dataset}: NDCG@{first.k}", fmean(run.ndcg.value for run in own), ndcg)


def _bit_goals(found: Quality) -> Iterator[Goal]:
    """Yield that private and plain runs were equal. A run without a private part has shown nothing."""
    runs: list[RatingRun | RankingRun] = [*found.ratings, *found.models, *found.rankings]
    if runs:
        equal = sum(run.same_bits and run.private_rounds > 0 for run in runs)
        yield Goal.at_least("private runs that equal the plain run bit for bit", equal, len(runs))
