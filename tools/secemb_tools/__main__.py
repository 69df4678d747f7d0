"""The `secemb` command."""

from pathlib import Path
from typing import Annotated

import typer

from secemb_tools.operate import commands as operating

app = typer.Typer(
    name="secemb",
    help="Train recommenders on people's devices without learning what they like.",
    no_args_is_help=True,
    add_completion=True,
    pretty_exceptions_show_locals=False,  # they may be keys
)


@app.command()
def demo(
    devices: Annotated[int, typer.Option(min=2, help="How many devices take part.")] = 20,
    items: Annotated[int, typer.Option(min=2, help="How many items the catalogue has.")] = 3883,
    seed: Annotated[int, typer.Option(help="Seed of the made-up tastes, not of the protocol.")] = 1,
) -> None:
    """Run one complete round in this process: two servers, some devices, and a check of the sum."""
    from secemb_tools.demo import run

    raise typer.Exit(run(devices=devices, items=items, seed=seed))


@app.command()
def kernel() -> None:
    """Say in one line which implementation does the work."""
    from secemb_tools.kernel import describe

    typer.echo(describe())


@app.command()
def bench(
    output: Annotated[Path, typer.Option(help="Where the figures go as JSON.")] = Path("build/bench.json"),
    seconds: Annotated[float, typer.Option(min=0.01, help="Time for each group of measurements.")] = 2.0,
    catalogue: Annotated[list[str] | None, typer.Option(help="Only this catalogue; may be given again.")] = None,
) -> None:
    """Measure the kernel against the AES limit and the constructions against each other."""
    from secemb_tools.bench import run
    from secemb_tools.bench.catalogues import choose

    run(output, seconds, choose(catalogue or []))


@app.command()
def loadtest(
    output: Annotated[Path, typer.Option(help="Where the figures go as JSON.")] = Path("build/loadtest.json"),
    devices: Annotated[int, typer.Option(min=2, max=2000, help="Devices at once, and sessions of a round.")] = 100,
    rounds: Annotated[int, typer.Option(min=1, max=1000, help="Rounds for each catalogue.")] = 3,
    catalogue: Annotated[list[str] | None, typer.Option(help="Only this catalogue; may be given again.")] = None,
) -> None:
    """Let many devices call two real services on loopback, and measure what a session costs."""
    from secemb_tools.bench.catalogues import choose
    from secemb_tools.loadtest import run

    run(output, choose(catalogue or ["ML1M", "ML25M", "Yelp"]), devices=devices, rounds=rounds)


@app.command()
def vectors(
    directory: Annotated[Path, typer.Option(help="Where the JSON files go.")] = Path("tests/vectors"),
) -> None:
    """Write the test vectors anew, with the portable definition."""
    from secemb_tools.vectors import write

    write(directory)


operating.register(app)


def main() -> None:
    """Run the command line."""
    app()


if __name__ == "__main__":
    main()
