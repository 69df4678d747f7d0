"""The files of `make quality`: figures as JSON, a page of tables as Markdown, and plots as SVG."""

from collections.abc import Iterator, Sequence

from secemb_lab.report.quality_goals import Quality, by_case, goals, grouped, rankings_by_case
from secemb_lab.report.quality_rankings import CURVE_PEOPLE
from secemb_lab.report.quality_ratings import RatingRun
from secemb_lab.report.quality_tables import bytes_table, models_table, rankings_table, ratings_table
from secemb_lab.report.report_file import ReportFile, goals_table, join_page
from secemb_sdk.models import registry
from secemb_tools.charts import line_chart

_HIGHEST = 0.1  # above the biases: what is worse is the beginning of a run, and not of interest
_INTRODUCTION = """\
# Quality

The quality of the recommendations that SecEmb trains. Every figure is measured on held-out ratings
or choices that no run trained on, and the baselines on exactly the same ones; n is their number. All
settings are defaults: none was tuned for a set, except that models with a goal run for the goal's
rounds. "±" is the standard deviation over seeds, which determine the sample, split, cohorts and
initial weights. Intervals are 95 % confidence intervals for other people of the same kind. A private
run uses the protocol's own code; "the same bits" means that its model equalled the plain run's after
every round. CPU seconds cover training only, not measuring. docs/evaluation.md defines the figures.
"""


def page(found: Quality, pictures: Sequence[str]) -> str:
    """Return the page: what was measured, whether it is good enough, and the tables with their plots."""
    made_up = "The data is made up: the figures only show that the report runs.\n" if found.quick else ""
    sections = {
        "Goals": goals_table(goals(found)),
        "Ratings: matrix factorisation by the rule": ratings_table(found.ratings) if found.ratings else "",
        "Ratings: each model": models_table(found.models) if found.models else "",
        "Bytes of a device until the paper's RMSE is reached": bytes_table(found.models),
        "Choices without ratings": rankings_table(found) if found.rankings else "",
    }
    took = f"Measured in {found.seconds / 60:.1f} minutes, {found.processes} runs at a time.\n"
    return join_page((_INTRODUCTION, made_up, took), sections, pictures)


def plots(found: Quality) -> Iterator[tuple[str, str]]:
    """Yield a picture for each set and part, with its name."""
    for own in grouped(found.ratings, lambda run: run.dataset):
        yield f"rule-{_file_name(own[0].dataset)}", _rule_plot(own)
    for own in grouped(found.models, lambda run: run.dataset):
        yield f"models-{_file_name(own[0].dataset)}", _models_plot(own)
    for dataset in dict.fromkeys(run.dataset for run in found.rankings):
        yield f"rankings-{_file_name(dataset)}", _rankings_plot(found, dataset)


def _rule_plot(runs: list[RatingRun]) -> str:
    firsts = [own[0] for own in by_case(runs)]
    names = [run.sample.replace("of the ", "") or "all" for run in firsts]  # short: all are in one line
    beyond = [[(done, min(rmse - run.biases, _HIGHEST)) for done, rmse in run.curve] for run in firsts]
    return line_chart(
        dict(zip(names, beyond, strict=True)),
        title=f"{firsts[0].dataset}: RMSE of MF by the rule, less that of the biases",
        across="rounds",
        level=("biases alone", 0.0),
    )


def _models_plot(runs: list[RatingRun]) -> str:
    firsts = [own[0] for own in by_case(runs)]
    biases = firsts[0].biases
    return line_chart(
        {_title(run): [(done, min(rmse, biases + _HIGHEST)) for done, rmse in run.curve] for run in firsts},
        title=f"{firsts[0].dataset}: RMSE",
        across=f"rounds of {firsts[0].cohort} devices",
        level=(f"biases alone {biases:.3f}", biases),
    )


def _rankings_plot(found: Quality, dataset: str) -> str:
    firsts = [own[0] for own in rankings_by_case(run for run in found.rankings if run.dataset == dataset)]
    level = next((one for one in found.baselines if one.dataset == dataset and one.name == "popularity"), None)
    return line_chart(
        {f"{run.model} {run.loss}": run.curve for run in firsts},
        title=f"{dataset}: recall@{firsts[0].k} of at most {CURVE_PEOPLE:,} people",
        across=f"rounds of {firsts[0].cohort} devices",
        level=None if level is None else (f"popularity {level.recall.value:.3f}", level.recall.value),
    )


def _title(run: RatingRun) -> str:
    return f"{registry.find(run.model).title} {run.rmse.value:.3f}"


def _file_name(dataset: str) -> str:
    return dataset.lower().replace(" ", "-")


FILE = ReportFile(kind=Quality, goals=goals, plots=plots, page=page)
