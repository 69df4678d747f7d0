"""The goals of `make sequences`."""

from collections.abc import Iterator
from dataclasses import dataclass, field

from secemb_lab.report.published import SEQUENCE_BARS
from secemb_lab.report.report_file import Goal
from secemb_lab.report.sequences_cost import CatalogueSize
from secemb_lab.report.sequences_run import SequenceRun, value_of

RANKED = {"hit_rate": "HR@10", "ndcg": "NDCG@10"}  # figures of a ranking, and what they are called
PERPLEXITY = "perplexity"
_MODEL, _SIMPLER = "model", "bigram"  # what a text's figures are of; what stands behind says on which texts


@dataclass(slots=True, kw_only=True)
class Sequences:
    """All measurements."""

    quick: bool  # made-up data: figures only show that it runs
    seconds: float = 0.0
    runs: list[SequenceRun] = field(default_factory=list)
    sizes: list[CatalogueSize] = field(default_factory=list)


def goals(found: Sequences) -> list[Goal]:
    """Return every goal that something was measured for."""
    each = [goal for run in found.runs for goal in (*_ranking_goals(run), *_text_goals(run, quick=found.quick))]
    return [*each, *_bit_goals(found.runs)]


def perplexities(run: SequenceRun) -> Iterator[tuple[str, float, float]]:
    """Yield each part of the held-out text with the perplexity of the model and of the bigrams there."""
    for name, figures in run.final.items():
        part = name.removeprefix(_MODEL)
        mine, other = (value_of(one.get(PERPLEXITY)) for one in (figures, run.final.get(_SIMPLER + part, {})))
        if part != name and mine is not None and other is not None:
            yield part.strip(", "), mine, other


def _ranking_goals(run: SequenceRun) -> Iterator[Goal]:
    bars = SEQUENCE_BARS.get(run.dataset, {}).get(run.model)
    for (figure, title), bar in zip(RANKED.items(), bars or (), strict=False):
        measured = run.figure(_MODEL, figure)
        yield Goal.at_least(f"{run.name}: {title} among 100 strangers", 0.0 if measured is None else measured, bar)


def _text_goals(run: SequenceRun, *, quick: bool) -> Iterator[Goal]:
    for part, mine, other in perplexities(run):
        if not quick:  # a few rounds teach nothing
            name = ", ".join(filter(None, (run.name, part)))
            yield Goal(
                name=f"{name}: perplexity below the bigrams'",
                measured=mine,
                goal=other,
                more=False,
                reached=mine < other,
            )


def _bit_goals(runs: list[SequenceRun]) -> Iterator[Goal]:
    """Yield that private and plain runs were equal, for as many rounds as the case wants."""
    if runs:
        equal = sum(run.same_bits for run in runs)
        yield Goal.at_least("private runs that equal the plain run bit for bit", equal, len(runs))
