"""Accuracy: each model trained privately and plainly, side by side, with the bias-only model as control."""

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import typer
from rich.console import Console

from secemb_tools.datasets import DatasetError, RatingSet, Split, read_movielens, split
from secemb_tools.report.curve import draw
from secemb_tools.report.figures import Figures, compare, table
from secemb_tools.simulation.control import bias_only_rmse
from secemb_tools.simulation.recipes import RECIPES, Recipe, recipe_for


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """What to measure."""

    path: Path
    models: str  # names, separated by commas
    rounds: int | None  # none: as the recipe says
    private_rounds: int | None  # none: as many as the plain run; zero: no private run
    seed: int
    out: Path
    as_json: bool = False


def run(request: Request) -> int:
    """Measure, print the table, write JSON and curves; return 1 if something is not as it must be."""
    console = Console(stderr=request.as_json)
    ratings = _read(console, request.path)
    recipes = [_recipe(name, ratings, request.rounds) for name in request.models.split(",")]
    data = split(ratings, seed=request.seed)
    control = bias_only_rmse(data)
    console.print(f"{ratings.name}, split {request.seed}: the bias-only model has an RMSE of {control:.4f}\n")
    found: list[Figures] = []
    for recipe in recipes:
        found.append(compare(console, recipe, data, seed=request.seed, private_rounds=request.private_rounds))
        _write(request, data, control, found)  # after each model: a long run that is cut short has something to show
    console.print(table(found, control))
    console.print(f"\nfigures in {request.out}, curves in {_picture(request.out)}")
    if request.as_json:
        print(request.out.read_text(encoding="utf-8"), end="")
    return 0 if all(figures.good for figures in found) else 1


def _read(console: Console, path: Path) -> RatingSet:
    with console.status("reading ratings"):
        try:
            return read_movielens(path)
        except DatasetError as error:
            raise typer.BadParameter(str(error)) from error


def _recipe(name: str, ratings: RatingSet, rounds: int | None) -> Recipe:
    if ratings.name not in RECIPES:
        raise typer.BadParameter(f"no recipe for {ratings.name}; there are some for {' and '.join(RECIPES)}")
    try:
        return recipe_for(name.strip(), ratings.name, rounds)
    except KeyError as error:
        raise typer.BadParameter(f"no model {name!r}; there are mf, ncf, fm and deepfm") from error


def _write(request: Request, data: Split, control: float, found: list[Figures]) -> None:
    request.out.parent.mkdir(parents=True, exist_ok=True)
    document: dict[str, Any] = {
        "ratings": data.train.name,
        "seed": request.seed,
        "train": data.train.values.size,
        "test": data.test.values.size,
        "bias_only_rmse": control,
        "models": [{**asdict(figures), "difference": figures.difference, "good": figures.good} for figures in found],
    }
    request.out.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
    _picture(request.out).write_text(draw(found, control), encoding="utf-8")


def _picture(out: Path) -> Path:
    return out.with_suffix(".svg")
