"""`secemb demo`, `simulate` and `run` as Typer sees them; each imports what it needs when it is called."""

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from secemb_tools import output
from secemb_tools.cli.options import REFUSED, AsJson, TransportOption, refusals
from secemb_tools.transport import Transport

Model = Annotated[str, typer.Option(help="mf, or with torch ncf, fm or deepfm.")]
Data = Annotated[Path | None, typer.Option(help="A directory with a rating set; without it, one is made up.")]
Devices = Annotated[int | None, typer.Option(min=2, help="How many devices there are; by default 200.")]
Cohort = Annotated[int | None, typer.Option(min=2, help="How many take part in a round; by default a fifth of them.")]
Rounds = Annotated[int, typer.Option(min=1, help="How many rounds.")]
Items = Annotated[int, typer.Option(min=10, help="How many items the made-up catalogue has.")]
Seed = Annotated[int, typer.Option(min=0, help="The same seed gives the same table here, bit for bit.")]
RunsFolder = Annotated[Path, typer.Option("--runs", help="The directory in which runs are kept.")]
RUNS = Path("build/runs")

run_app = typer.Typer(help="Runs of `secemb simulate` that are kept.", no_args_is_help=True)


class Comparison(StrEnum):
    """What a private run is compared with."""

    PLAIN = "plain"


def register(app: typer.Typer) -> None:
    """Add the commands."""
    for command in (demo, simulate):
        app.command()(command)
    app.add_typer(run_app, name="run")


def demo(
    devices: Devices = None,
    rounds: Rounds = 30,
    items: Items = 3000,
    cohort: Cohort = None,
    data: Data = None,
    model: Model = "mf",
    seed: Seed = 1,
    transport: TransportOption = Transport.RELAYED,
    keep: Annotated[bool, typer.Option("--keep", help="Leave both servers up until Ctrl-C.")] = False,
    out: Annotated[Path, typer.Option(help="Where the report goes.")] = Path("build/demo.html"),
    json: AsJson = False,
) -> None:
    """Show the whole product: two servers, simulated devices over HTTP, a live view and a report. Needs no network."""
    from secemb_tools.demo.demo import Request, run
    from secemb_tools.simulation.scenario import make_world

    with refusals():
        with output.busy("reading ratings"):
            world = make_world(
                devices=devices, rounds=rounds, items=items, cohort=cohort, data=data, model=model, seed=seed
            )
        code = run(Request(world=world, out=out, transport=transport, keep=keep, as_json=json))
    raise typer.Exit(code)


def simulate(
    devices: Devices = None,
    rounds: Rounds = 30,
    items: Items = 3000,
    cohort: Cohort = None,
    data: Data = None,
    model: Model = "mf",
    seed: Seed = 1,
    capacity: Annotated[int, typer.Option(min=4, help="Most ratings of a device that take part (m').")] = 100,
    dimension: Annotated[int, typer.Option(min=1, help="Of an item's vector.")] = 16,
    evaluate_every: Annotated[int, typer.Option(min=2, help="Every so many rounds, measure the fleet.")] = 3,
    epochs: Annotated[int, typer.Option(min=1, help="Passes of a device over its ratings in a round.")] = 4,
    rate: Annotated[str | None, typer.Option(help="Learning rate of the rows, instead of the model's own.")] = None,
    compare: Annotated[Comparison | None, typer.Option(help="Run plainly from the same seeds as well.")] = None,
    runs: RunsFolder = RUNS,
    name: Annotated[str | None, typer.Option(help="The run's name; without it, one that says what it is.")] = None,
    save_every: Annotated[int, typer.Option(min=1, help="Keep the state every so many rounds.")] = 10,
    json: AsJson = False,
) -> None:
    """Run the protocol in this process, for thousands of devices; the same command again goes on with a run."""
    from secemb_tools.simulation.scenario import make_world
    from secemb_tools.simulation.view import run_with_progress

    with refusals():
        with output.busy("reading ratings"):
            world = make_world(
                devices=devices,
                cohort=cohort,
                data=data,
                rounds=rounds,
                items=items,
                model=model,
                seed=seed,
                capacity=capacity,
                dimension=dimension,
                evaluate_every=evaluate_every,
                epochs=epochs,
                rate=rate,
            )
        code = run_with_progress(
            world, runs=runs, name=name, compare_plain=compare is not None, save_every=save_every, as_json=json
        )
    raise typer.Exit(code)


@run_app.command("list")
def list_(runs: RunsFolder = RUNS, json: AsJson = False) -> None:
    """Print the runs that are kept; exit code 1 if one of them cannot be read."""
    from secemb_tools.simulation.run import COLUMNS, list_runs

    with refusals():
        found, damaged = list_runs(runs)
        output.show_rows(COLUMNS, found, as_json=json)
    for words in damaged:
        output.note(words)
    raise typer.Exit(REFUSED if damaged else 0)


@run_app.command()
def show(
    name: Annotated[str, typer.Argument(help="The run's name.")], runs: RunsFolder = RUNS, json: AsJson = False
) -> None:
    """Print a run's table."""
    from secemb_tools.simulation.run import Run
    from secemb_tools.simulation.view import show_run

    with refusals():
        found = Run.load(runs / name)
        if json:
            output.show_json(found.as_json())
        else:
            show_run(found)


@run_app.command("compare")
def compare_(
    first: Annotated[str, typer.Argument(help="A run's name.")],
    second: Annotated[str, typer.Argument(help="Another one's.")],
    runs: RunsFolder = RUNS,
    json: AsJson = False,
) -> None:
    """Print two runs next to each other, and whether they are the same to the last bit."""
    from secemb_tools.simulation.run import Run, compare_runs
    from secemb_tools.simulation.view import show_comparison

    with refusals():
        comparison = compare_runs(Run.load(runs / first), Run.load(runs / second))
        if json:
            output.show_json(comparison)
        else:
            show_comparison(comparison)
