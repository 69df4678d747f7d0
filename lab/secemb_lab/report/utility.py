"""Accuracy: each model trained privately and plainly, side by side, with the bias-only model as control."""

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from time import perf_counter
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from secemb_tools.charts import Points, line_chart
from secemb_tools.datasets import RatingSet, Split, read_movielens, split
from secemb_tools.errors import OperationError
from secemb_tools.simulation.baseline import bias_only_rmse
from secemb_tools.simulation.engine import Engine
from secemb_tools.simulation.processes import Processes, count_for
from secemb_tools.simulation.recipes import Recipe
from secemb_tools.simulation.rounds import PLAIN, PRIVATE
from secemb_tools.simulation.survey import with_centre
from secemb_tools.simulation.view import RoundsBar
from secemb_tools.simulation.world import world_for

HIGHEST = 1.01  # what is worse than this is the beginning, and not of interest
REPORTED = ("mf", "ncf", "fm", "deepfm")  # the models of published figures
PAPER = {
    "ML100K": {"mf": 0.944, "ncf": 0.949, "fm": 0.937, "deepfm": 0.939},
    "ML1M": {"mf": 0.903, "ncf": 0.897, "fm": 0.906, "deepfm": 0.902},
}
# Rounds of 100 devices, and the RMSE that a model must have reached after them.
BARS = {
    "ML100K": {"mf": (100, 0.912), "ncf": (150, 0.931), "fm": (350, 0.905), "deepfm": (125, 0.906)},
    "ML1M": {"mf": (300, 0.864), "ncf": (427, 0.893), "fm": (366, 0.869), "deepfm": (213, 0.879)},
}

POINTS = 28  # of a curve
LARGEST_DIFFERENCE = 0.001  # of RMSE, between a private and a plain run


@dataclass(frozen=True, slots=True)
class Point:
    """The error after some rounds."""

    round: int
    plain: float
    private: float | None


@dataclass(slots=True)
class Figures:
    """What one model reached."""

    model: str
    rounds: int
    paper: float | None
    bar: float | None  # none if fewer rounds were run than it is for
    curve: list[Point] = field(default_factory=list)
    same_bits: bool | None = None  # whether both runs had the same model after every round
    plain_seconds: float = 0.0
    private_seconds: float = 0.0
    sessions: int = 0
    clipped: int = 0
    failed: int = 0

    @property
    def plain(self) -> float:
        """Return the plain run's last error."""
        return self.curve[-1].plain

    @property
    def compared(self) -> Point | None:
        """Return the last point that the private run reached."""
        return next((point for point in reversed(self.curve) if point.private is not None), None)

    @property
    def difference(self) -> float | None:
        """Return how much worse the private run is where it ended."""
        point = self.compared
        return None if point is None or point.private is None else point.private - point.plain

    @property
    def good(self) -> bool:
        """Tell whether the bar is reached, as far as each run went, and the private run is as good as the plain one."""
        lossless = self.difference is None or abs(self.difference) < LARGEST_DIFFERENCE
        reached = max(self.plain, self.curve[-1].private or 0.0)
        return lossless and (self.bar is None or reached <= self.bar)


def compare(
    console: Console,
    recipe: Recipe,
    data: Split,
    *,
    seed: int,
    private_rounds: int | None,
    processes: Processes | None = None,
) -> Figures:
    """Run a recipe plainly, and privately for at most that many rounds; show how far it is."""
    label = data.train.label
    rounds, bar_rmse = BARS.get(label, {}).get(recipe.model, (recipe.rounds, None))
    paper = PAPER.get(label, {}).get(recipe.model)
    figures = Figures(recipe.model, recipe.rounds, paper, bar_rmse if recipe.rounds >= rounds else None)
    world = world_for(recipe, data.train, seed=seed)
    runs = [Engine(world, way=way, processes=processes) for way in (PLAIN, PRIVATE)]
    last = recipe.rounds if private_rounds is None else min(private_rounds, recipe.rounds)
    every = max(1, recipe.rounds // POINTS)
    bar = RoundsBar(console, recipe.model, rounds=recipe.rounds)
    with bar.progress:
        for number in range(1, recipe.rounds + 1):
            _step(figures, runs, private=number <= last)
            measured = number % every == 0 or number in (last, recipe.rounds)
            if measured:
                errors = [one.rmse(data.test) for one in (runs if number <= last else runs[:1])]
                figures.curve.append(Point(number, errors[0], errors[1] if number <= last else None))
            bar.show(number, figures.plain if measured else None)
    counts = runs[0].counts
    figures.sessions, figures.clipped, figures.failed = counts.sessions, counts.clipped, counts.failed
    return figures


def _step(figures: Figures, runs: list[Engine], *, private: bool) -> None:
    plainly, privately = runs
    begin = perf_counter()
    plainly.step()
    middle = perf_counter()
    figures.plain_seconds += middle - begin
    if private:
        privately.step()
        figures.private_seconds += perf_counter() - middle
        figures.same_bits = figures.same_bits is not False and plainly.model.digest == privately.model.digest


def table(found: list[Figures], control: float) -> Table:
    """Return the figures for people to read."""
    names = ("model", "rounds", "private", "plain", "differ", "paper", "bar", "seconds", "")
    result = Table(*names, box=SIMPLE_HEAD, show_edge=False, padding=0)
    for one in found:
        result.add_row(
            one.model,
            f"{one.rounds:,}",
            _private(one),
            _number(one.plain),
            _difference(one),
            _number(one.paper),
            _number(one.bar),
            f"{one.private_seconds:.0f} + {one.plain_seconds:.0f}",
            _mark(one),
        )
    result.caption = f"RMSE on the test ratings; the bias-only model has {control:.4f}"
    return result


def _mark(one: Figures) -> str:
    """Say whether it is good, and of which run that is known where the private one did not go to the end."""
    if not one.good:
        return "[red]missed[/red]"
    whole = one.compared is not None and one.compared.round == one.rounds
    return "[green]good[/green]" if whole else "[yellow]good, plain run[/yellow]"


def _private(one: Figures) -> str:
    point = one.compared
    if point is None:
        return ""
    return _number(point.private) + ("" if point.round == one.rounds else f" after {point.round:,}")


def _difference(one: Figures) -> str:
    if one.difference is None:
        return ""
    return "0 bits" if one.same_bits else f"{one.difference:+.6f}"


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:.4f}"


@dataclass(frozen=True, slots=True, kw_only=True)
class UtilityOptions:
    """What to measure."""

    path: Path
    models: str  # names, separated by commas
    rounds: int | None  # none: as the recipe says
    private_rounds: int | None  # none: as many as the plain run; zero: no private run
    seed: int
    out: Path
    as_json: bool = False


def run(options: UtilityOptions) -> int:
    """Measure, print the table, write JSON and curves; return 1 if something is not as it must be."""
    console = Console(stderr=options.as_json)
    ratings = _read(console, options.path)
    data = split(ratings, seed=options.seed)
    recipes = [_recipe(name.strip(), data.train, options) for name in options.models.split(",")]
    control = bias_only_rmse(data)
    console.print(f"{ratings.label}, split {options.seed}: the bias-only model has an RMSE of {control:.4f}\n")
    found: list[Figures] = []
    with Processes(count_for(sum(recipe.rounds * recipe.cohort for recipe in recipes))) as processes:
        for recipe in recipes:
            rounds = options.private_rounds
            figures = compare(console, recipe, data, seed=options.seed, private_rounds=rounds, processes=processes)
            found.append(figures)
            _write(options, data, control, found)  # after each: a long run that is cut short has something to show
    console.print(table(found, control))
    console.print(f"\nfigures in {options.out}, curves in {_picture(options.out)}")
    if options.as_json:
        print(options.out.read_text(encoding="utf-8"), end="")
    return 0 if all(figures.good for figures in found) else 1


def _read(console: Console, path: Path) -> RatingSet:
    with console.status("reading ratings"):
        return read_movielens(path)


def _recipe(name: str, train: RatingSet, options: UtilityOptions) -> Recipe:
    if name not in REPORTED:
        raise OperationError(f"no figures for the model {name!r}; choose among {', '.join(REPORTED)}")
    rounds = options.rounds or BARS.get(train.label, {}).get(name, (None, None))[0]
    return with_centre(Recipe.by_rule(train, model=name, rounds=rounds), train, seed=options.seed)


def _write(options: UtilityOptions, data: Split, control: float, found: list[Figures]) -> None:
    options.out.parent.mkdir(parents=True, exist_ok=True)
    document: dict[str, Any] = {
        "ratings": data.train.label,
        "seed": options.seed,
        "train": data.train.values.size,
        "test": data.test.values.size,
        "bias_only_rmse": control,
        "models": [{**asdict(figures), "difference": figures.difference, "good": figures.good} for figures in found],
    }
    options.out.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
    _picture(options.out).write_text(draw(found, control), encoding="utf-8")


def _picture(out: Path) -> Path:
    return out.with_suffix(".svg")


def draw(found: Sequence[Figures], control: float) -> str:
    """Return the picture: a line for each plain run, a dotted one for the private run, and the control."""
    series: dict[str, Points] = {}
    for one in found:
        name = f"{one.model} {one.plain:.3f}"
        series[name] = [(point.round, min(point.plain, HIGHEST)) for point in one.curve]
        private = [(point.round, point.private) for point in one.curve if point.private is not None]
        series[f"{name}, private"] = [(round_, min(error, HIGHEST)) for round_, error in private]
    title, level = "RMSE; dotted: trained privately", (f"biases only {control:.3f}", control)
    return line_chart(series, title=title, across="rounds of 100 devices", pairs=True, level=level)
