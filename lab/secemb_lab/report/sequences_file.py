"""The files of `make sequences`: figures as JSON, a page of tables as Markdown, and plots as SVG."""

from collections.abc import Iterator, Sequence

from secemb_lab.report.published import SEQUENCE_PAPER
from secemb_lab.report.report_file import ReportFile, goals_table, join_page
from secemb_lab.report.sequences_goals import Sequences, goals
from secemb_lab.report.sequences_run import Point, SequenceRun
from secemb_lab.report.sequences_tables import (
    costs_table,
    final_tables,
    rankings_table,
    runs_table,
    sizes_table,
    texts_table,
)
from secemb_sdk.models import registry
from secemb_tools.charts import line_chart

_INTRODUCTION = """\
# Sequences

How well models that SecEmb trains on events and texts predict what comes next. Each person's last
event is held out and ranked among 100 strangers, drawn uniformly from the items that the person has
not chosen, and in the whole catalogue. The former is at least four times easier, so compare figures
only with others of the same kind. All settings are defaults. See docs/sequences.md for details.
"""
_BARELY = (
    "On {dataset} the paper's figures ({paper}) are barely above popularity among 100 strangers "
    "({popular}), which needs no model.\n"
)


def page(found: Sequences, pictures: Sequence[str]) -> str:
    """Return the page: what was measured, whether it is good enough, and the tables with their plots."""
    made_up = "The data is made up: the figures only show that the report runs.\n" if found.quick else ""
    sections = {
        "Goals": goals_table(wanted) if (wanted := goals(found)) else "",
        "Rankings": "\n".join(filter(None, (rankings_table(found.runs), *map(_compared, found.runs)))),
        "Texts": texts_table(found.runs),
        "Runs": runs_table(found.runs) if found.runs else "",
        "What a round costs a device": costs_table(found.runs) if found.runs else "",
        "All of Amazon": sizes_table(found.sizes) if found.sizes else "",
        "Everything that the runs measured": final_tables(found.runs),
    }
    took = f"Measured in {found.seconds / 60:.1f} minutes.\n"
    return join_page((_INTRODUCTION, made_up, took), sections, pictures)


def _compared(run: SequenceRun) -> str:
    """Return what the paper's figures are worth where its catalogue is the same, or nothing."""
    paper = SEQUENCE_PAPER.get(run.dataset, {}).get(run.model)
    popular = [run.figure("popularity", name) for name in ("hit_rate", "ndcg")]
    if run.dataset != "ml-1m" or paper is None or None in popular:
        return ""
    figures = (f"{run.model} {paper[0]:.3f} / {paper[1]:.3f}", " / ".join(f"{one:.3f}" for one in popular))
    return _BARELY.format(dataset=run.dataset, paper=figures[0], popular=figures[1])


def plots(found: Sequences) -> Iterator[tuple[str, str]]:
    """Yield a picture for each case whose fleet has ranked something, with its name."""
    for run in found.runs:
        if run.curve:
            yield run.name, _plot(run)


def _plot(run: SequenceRun) -> str:
    """Return HR@10 over the rounds, as the fleet measures it, beside the figures at the end of everybody."""
    paper = SEQUENCE_PAPER.get(run.dataset, {}).get(run.model)
    levels = {
        "model at the end": run.figure("model", "hit_rate"),
        "popularity at the end": run.figure("popularity", "hit_rate"),
        "paper": None if paper is None else paper[0],
    }
    series: dict[str, list[Point]] = {
        f"model, {run.strangers}": run.curve,
        f"popularity, {run.strangers}": run.popular_curve,
    }
    ends = run.curve[0][0], run.curve[-1][0]
    for name, level in levels.items():
        if level is not None:
            series.setdefault(name, [(ends[0], level), (ends[1], level)])
    title = f"{run.dataset}, {registry.find(run.model).title}: HR@10 among this many strangers"
    return line_chart(series, title=title, across=f"rounds of {run.cohort} devices", span=(0.0, 1.0))


FILE = ReportFile(kind=Sequences, goals=goals, plots=plots, page=page)
