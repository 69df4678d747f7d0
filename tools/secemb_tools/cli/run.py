"""`secemb run`: kept runs of `secemb simulate`."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from secemb_tools import output
from secemb_tools.cli.options import REFUSED, RUNS, AsJson, RunsFolder, refusals
from secemb_tools.errors import RunError

if TYPE_CHECKING:
    from secemb_tools.simulation.run import Run

app = typer.Typer(help="Manage the saved runs of `secemb simulate`.", no_args_is_help=True)
Name = Annotated[str, typer.Argument(help="The run's name.")]
_FIGURES = ("rmse", "biases", "ndcg", "popularity", "coverage")


@app.command("list")
def list_(runs: RunsFolder = RUNS, json: AsJson = False) -> None:
    """List saved runs. Exits with code 1 if any of them cannot be read."""
    from secemb_tools.simulation.comparison import COLUMNS, list_runs

    with refusals():
        found, damaged = list_runs(runs)
        output.show_rows(COLUMNS, found if json else [_in_words(row) for row in found], as_json=json)
    for words in damaged:
        output.note(words)
    raise typer.Exit(REFUSED if damaged else 0)


@app.command()
def show(name: Name, runs: RunsFolder = RUNS, json: AsJson = False) -> None:
    """Show a run's table."""
    from secemb_tools.simulation.run import Run

    with refusals():
        _show(Run.load(runs / name), as_json=json)


@app.command("compare")
def compare_(
    first: Annotated[str, typer.Argument(help="A run's name.")],
    second: Annotated[str | None, typer.Argument(help="Another run's name.")] = None,
    plain: Annotated[
        bool, typer.Option("--plain", help="Compare with the same rounds without protection, which are run now.")
    ] = False,
    runs: RunsFolder = RUNS,
    json: AsJson = False,
) -> None:
    """Show two runs side by side and whether they are bit-identical. Exits with code 1 if a plain run differs."""
    from secemb_tools.simulation.comparison import compare_runs, compare_with_plain
    from secemb_tools.simulation.continuation import add_plain
    from secemb_tools.simulation.run import Run
    from secemb_tools.simulation.view import RunProgress, show_comparison

    with refusals():
        if (second is None) != plain:
            raise RunError("give two runs, or one run and --plain")
        run = Run.load(runs / first)
        if second is not None:
            comparison = compare_runs(run, Run.load(runs / second))
        else:
            with RunProgress("plain", rounds=len(run.rows)) as progress:
                run = add_plain(run, runs=runs, watch=progress.watch, processes=None)
            comparison = compare_with_plain(run)
        if json:
            output.show_json(comparison)
        else:
            show_comparison(comparison)
    raise typer.Exit(REFUSED if plain and not comparison["same"] else 0)


@app.command("continue")
def continue_(
    name: Name,
    rounds: Annotated[str, typer.Option(help="+60: 60 more rounds; 90: up to 90 rounds in total.")],
    runs: RunsFolder = RUNS,
    save_every: Annotated[int, typer.Option(min=1, help="Save the state every this many rounds.")] = 10,
    json: AsJson = False,
) -> None:
    """Train a run for more rounds, starting from its model, optimiser and private parts."""
    from secemb_tools.simulation.continuation import continue_run, rounds_asked
    from secemb_tools.simulation.run import Run
    from secemb_tools.simulation.view import RunProgress

    with refusals():
        run = Run.load(runs / name)
        wanted = rounds_asked(rounds, run)
        with RunProgress(run.scenario.model, rounds=wanted) as progress:
            run = continue_run(
                run, rounds=wanted, runs=runs, save_every=save_every, watch=progress.watch, processes=None
            )
        _show(run, as_json=json)


@app.command()
def export(
    name: Name,
    out: Annotated[Path, typer.Option(help="The safetensors file to write; NAME.catalogue.csv is written beside it.")],
    runs: RunsFolder = RUNS,
    json: AsJson = False,
) -> None:
    """Export the model of a run (rows and dense part, with task and settings) and the catalogue of its items."""
    from secemb_tools.simulation.run import Run

    with refusals():
        output.show_facts(Run.load(runs / name).export(out), as_json=json)


@app.command()
def recommend(
    name: Name,
    user: Annotated[str | None, typer.Option(help="The id of a user in the set.")] = None,
    likes: Annotated[
        str | None, typer.Option(help="Instead of a user: ids of liked items, separated by commas.")
    ] = None,
    k: Annotated[int, typer.Option("--k", "-k", min=1, help="Number of items.")] = 10,
    include_rated: Annotated[bool, typer.Option("--include-rated", help="Include items already rated.")] = False,
    runs: RunsFolder = RUNS,
    json: AsJson = False,
) -> None:
    """Recommend items of a run's set, with ids and titles, to one of its users or to someone who likes given items."""
    from secemb_tools.simulation.run import Run

    with refusals():
        liked = [one.strip() for one in (likes or "").split(",") if one.strip()]
        found = Run.load(runs / name).recommend(user=user, likes=liked, k=k, include_rated=include_rated)
        output.show_items(found, as_json=json)
        if not found:
            output.note(
                "nothing left to recommend: all items are rated or liked; use --include-rated to include rated items"
            )


def _in_words(row: dict[str, Any]) -> dict[str, Any]:
    """Return a run's line with figures as people read them."""
    low, high = row["interval"] or (None, None)
    rounded = {name: None if row[name] is None else f"{row[name]:.4f}" for name in _FIGURES}
    return row | rounded | {"interval": None if low is None else f"{low:.4f}-{high:.4f}"}


def _show(run: "Run", *, as_json: bool) -> None:
    from secemb_tools.simulation.view import show_run

    if as_json:
        output.show_json(run.as_json())
    else:
        show_run(run)
