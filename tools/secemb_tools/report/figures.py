"""What one model reached: the private run and the plain run, step by step together."""

from dataclasses import dataclass, field
from time import perf_counter

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from secemb_tools.datasets import Split
from secemb_tools.simulation.progress import RoundsBar
from secemb_tools.simulation.recipes import Recipe
from secemb_tools.simulation.summing import add_plainly, add_privately
from secemb_tools.simulation.training import Training

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


def compare(console: Console, recipe: Recipe, data: Split, *, seed: int, private_rounds: int | None) -> Figures:
    """Run a recipe plainly, and privately for at most so many rounds; show how far it is."""
    figures = Figures(recipe.model, recipe.rounds, recipe.paper, recipe.bar)
    runs = [Training(recipe, data, seed=seed, add=add) for add in (add_plainly, add_privately)]
    last = recipe.rounds if private_rounds is None else min(private_rounds, recipe.rounds)
    every = max(1, recipe.rounds // POINTS)
    bar = RoundsBar(console, recipe.model, rounds=recipe.rounds)
    with bar.progress:
        for number in range(1, recipe.rounds + 1):
            _step(figures, runs, private=number <= last)
            measured = number % every == 0 or number in (last, recipe.rounds)
            if measured:
                figures.curve.append(Point(number, runs[0].rmse(), runs[1].rmse() if number <= last else None))
            bar.show(number, figures.plain if measured else None)
    counts = runs[0].counts
    figures.sessions, figures.clipped, figures.failed = counts.sessions, counts.clipped, counts.failed
    return figures


def _step(figures: Figures, runs: list[Training], *, private: bool) -> None:
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
