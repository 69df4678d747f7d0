"""The view of a run: a progress bar while it runs, and a table at the end."""

from pathlib import Path
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.table import Table

from secemb_party.accountant import epsilon_known
from secemb_party.errors import AccountantMissingError
from secemb_shared.messages.spec import SQUARED
from secemb_tools import output
from secemb_tools.simulation.engine import Row
from secemb_tools.simulation.noise import terms_of
from secemb_tools.simulation.run import ALL_ROUNDS, CUT, EARLY, Run
from secemb_tools.simulation.scenario import Scenario, ScenarioWorld
from secemb_tools.simulation.simulate import simulate_world
from secemb_tools.simulation.world import Sampled


class RoundsBar:
    """The progress of a run; in a file, where a bar is useless, a line for each error."""

    def __init__(self, console: Console, name: str, *, rounds: int) -> None:
        self._console, self._name = console, name
        self.progress = Progress(
            TextColumn("{task.description:7}"),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("{task.fields[error]}"),
            TimeElapsedColumn(),
            TimeRemainingColumn(),
            console=console,
            transient=True,
        )
        self._task = self.progress.add_task(name, total=rounds, error="")

    def show(self, row: Row) -> None:
        """Show a finished round, and its measurements, if any."""
        self.progress.update(self._task, completed=row.round + 1)
        if row.rmse is not None:
            words = f"RMSE {row.rmse:.4f}"
        elif row.ndcg is not None:
            words = f"NDCG {row.ndcg:.4f}"
        else:
            return
        self.progress.update(self._task, error=words)
        if not self._console.is_terminal:
            self._console.print(f"{self._name} round {row.round}: {words}")


class RunProgress:
    """The progress bar for continuing a saved run, on stderr, as a context manager."""

    def __init__(self, name: str, *, rounds: int) -> None:
        self._bar = RoundsBar(Console(stderr=True, highlight=False), name, rounds=rounds)

    def __enter__(self) -> "RunProgress":
        self._bar.progress.start()
        return self

    def __exit__(self, *raised: object) -> None:
        self._bar.progress.stop()

    def watch(self, row: Row) -> None:
        """Show a finished round."""
        self._bar.show(row)


INTERRUPTED = 130
_ENDED = {
    ALL_ROUNDS: "all rounds completed",
    EARLY: "stopped early: the last evaluations were worse than an earlier one",
    CUT: "interrupted, or still running: run the same `secemb simulate` again to resume it",
}


_LEFT_OUT = "dropped: the biases alone did better in evaluations (--dimension 0 trains only those, with less traffic)"


def run_with_progress(
    world: ScenarioWorld, *, runs: Path, name: str | None, compare_plain: bool, save_every: int, as_json: bool
) -> int:
    """Run a world with a bar on stderr, and print its table; return 0, 1 if a plain run differs, 130 after Ctrl-C."""
    console = Console(stderr=True, highlight=False)
    bar = RoundsBar(console, world.scenario.model, rounds=world.scenario.all_rounds)
    with bar.progress:
        try:
            run = simulate_world(
                world,
                runs=runs,
                name=name,
                compare_plain=compare_plain,
                save_every=save_every,
                processes=None,
                watch=bar.show,
            )
        except KeyboardInterrupt:
            console.print(f"Stopped. Run the same command again to continue from the rounds saved in {runs}.")
            return INTERRUPTED
    if as_json:
        output.show_json(run.as_json())
    else:
        show_run(run)
        Console(highlight=False).print(f"saved in {runs / run.name}", soft_wrap=True)
    return 1 if run.same_as_plain is False else 0


def show_run(run: Run) -> None:
    """Print the results of a run."""
    facts: dict[str, object] = {
        "run": run.name,
        "model": run.scenario.model,
        "devices": f"{run.scenario.devices:,}, {run.scenario.cohort:,} in a round",
        "rounds": f"{run.trained:,} of {run.scenario.rounds:,}",
        "ended": _ENDED[run.ended] + ("; the model is that of the best evaluation" if run.stopped else ""),
        **({"vectors": _LEFT_OUT} if run.without_vectors else {}),
        "seconds": f"{run.seconds:.1f}",
    }
    if run.returns:
        facts["continued"] = "; ".join(
            f"from v{back.version}, the best version, in round {back.round}: v{back.version + 1} to "
            f"v{back.last} of earlier rounds were dropped, and numbering continues from there"
            for back in run.returns
        )
    if (noise := run.scenario.noise) is not None and noise.epsilon is not None:
        facts["privacy"] = f"ε = {noise.epsilon:g}, δ = {noise.delta:g} for each {noise.unit}, over all rounds"
        facts["holds against"] = "those who do not know who took part (docs/privacy.md)"  # rounds are sampled
        facts["against others"] = _known(run.scenario)
        survey = "the scale of the ratings, and " if run.scenario.recipe.loss == SQUARED else ""
        facts["not covered"] = f"{survey}the figures below, to which no noise was added"
    if run.same_as_plain is not None:
        facts["plain run"] = "the same model, bit for bit" if run.same_as_plain else "a DIFFERENT model"
    _show_rounds(run)  # first, so that the results are what one sees at the end
    output.show_facts(facts, as_json=False)
    if run.final is not None:
        show_final(run.final, advice=_advice(run))


def _show_rounds(run: Run) -> None:
    """Print the figures of the evaluations."""
    names = ("rmse", "mae") if run.scenario.recipe.loss == SQUARED else ("ndcg", "recall")
    table = Table("round", *(name.upper() for name in names), "model", "digest", box=SIMPLE_HEAD, show_edge=False)
    for row in run.rows:
        if names[0] in row.figures:
            figures = (_error(row.figures.get(name)) for name in names)
            table.add_row(str(row.round), *figures, f"v{row.version}", row.digest[:16])
    what = "errors" if run.scenario.recipe.loss == SQUARED else "rankings among sampled strangers"
    table.caption = f"{what} on the devices of each round"
    if table.row_count and not _is_of_texts(run.final):  # one word of each device, among rare ones, is not informative
        Console(highlight=False).print(table)


def _known(scenario: Scenario) -> str:
    """Return the ε against those who know who took part, if it is available here."""
    if scenario.noise is None:
        return "unknown: the run has no noise"
    try:
        schedule = Sampled(people=scenario.devices, cohort=scenario.cohort, seed=scenario.seed)
        terms = terms_of(scenario.noise, schedule, scenario.rounds)
    except AccountantMissingError as error:
        return f"unknown: {error}"
    return "unknown: the run has no noise" if terms is None else f"ε = {epsilon_known(terms, scenario.rounds):.3g}"


def _advice(run: Run) -> str:
    """Return advice for a model that does not beat a simpler one."""
    if run.scenario.noise is not None:
        return "more rounds would cost budget. Use larger rounds (--cohort) or a larger --epsilon; see docs/privacy.md"
    if run.ended == EARLY:
        return "more rounds did not help. See docs/quality.md"
    return "train longer, or see docs/quality.md"


def show_final(final: dict[str, Any], *, advice: str) -> None:
    """Print the model's figures and those of simpler models on the same interactions."""
    if _is_of_texts(final):
        _show_perplexities(final, advice=advice)
        return
    console, figures = Console(highlight=False), final["model"]
    names = [name for name in ("rmse", "mae", "hit_rate", "recall", "ndcg", "mrr") if name in figures]
    table = Table("", *names, box=SIMPLE_HEAD, show_edge=False, padding=(0, 1, 0, 0))  # 80 columns suffice
    for name, found in final.items():
        table.add_row(name, *(_estimate(found[one]) for one in names))
    ranks = f", whole catalogue, k = {figures['k']}" if "k" in figures else ""
    table.caption = f"{figures['interactions']:,} held-out items of {figures['people']:,} people{ranks}"
    console.print(table)
    if figures.get("coverage") is not None:
        shares = ", ".join(
            f"{name} {found['coverage']:.1%}" for name, found in final.items() if found["coverage"] is not None
        )
        console.print(f"coverage (share of the catalogue recommended to at least one person): {shares}", soft_wrap=True)
    decisive = "rmse" if "rmse" in names else "ndcg"
    best = min(_value(found, decisive) for found in _alike(final, figures)[1:])
    if _value(figures, decisive) > best:
        console.print(f"The model is not better than a simpler one: {advice}.", soft_wrap=True)


def _is_of_texts(final: dict[str, Any] | None) -> bool:
    return any("perplexity" in found for found in (final or {}).values())


def _show_perplexities(final: dict[str, Any], *, advice: str) -> None:
    """Print the perplexities of the model and simpler ones on texts that no device has."""
    console, table = Console(highlight=False), Table("", "perplexity", "words", box=SIMPLE_HEAD, show_edge=False)
    for name, found in final.items():
        table.add_row(name, _estimate(found["perplexity"], digits=1), f"{found['words']:,}")
    vocabulary = next(iter(final.values()))["vocabulary"]
    table.caption = f"among all {vocabulary:,} words; simpler models see the training texts of all devices in one place"
    console.print(table)
    for kind in dict.fromkeys(name.partition(", ")[2] for name in final):
        values = [found["perplexity"]["value"] for name, found in final.items() if name.endswith(f", {kind}")]
        if values[0] > min(values[1:]):
            console.print(f"The model is not better than a simpler one on {kind}: {advice}.", soft_wrap=True)


def _alike(final: dict[str, Any], figures: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the figures of rankings among the same number of items, or of predictions; the model's come first."""
    return [found for found in final.values() if found.get("strangers") == figures.get("strangers")]


def _value(found: dict[str, Any], name: str) -> float:
    """Return a figure with a sign such that less is better."""
    value: float = found[name]["value"]
    return value if name == "rmse" else -value


def _estimate(found: dict[str, float | None], *, digits: int = 4) -> str:
    if found["low"] is None or found["high"] is None:
        return f"{found['value']:.{digits}f}"
    return f"{found['value']:.{digits}f} ± {(found['high'] - found['low']) / 2:.{digits}f}"


def show_comparison(comparison: dict[str, Any]) -> None:
    """Print two runs side by side."""
    table = Table("round", comparison["first"], comparison["second"], "", box=SIMPLE_HEAD, show_edge=False)
    for row in comparison["rounds"]:
        figure = "ndcg" if row["first_rmse"] is None and row["second_rmse"] is None else "rmse"
        first, second = row[f"first_{figure}"], row[f"second_{figure}"]
        if first is not None or second is not None:
            same = "the same" if row["same"] else "differ"
            table.add_row(str(row["round"]), _error(first), _error(second), same)
    console = Console(highlight=False, soft_wrap=True)
    console.print(table)
    for name, (mine, other) in comparison["differences"].items():
        console.print(f"{name}: {mine} and {other}")
    console.print("Identical, bit for bit." if comparison["same"] else "These are different runs.")


def _error(value: float | None) -> str:
    return "-" if value is None else f"{value:.4f}"
