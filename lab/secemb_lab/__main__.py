"""`python -m secemb_lab`: benchmarks, load tests, byte counts, reports and test vectors."""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from secemb_lab.report import commands as report
from secemb_tools.catalogues import PaperCatalogue, choose
from secemb_tools.cli.options import REFUSED, AsJson, refusals
from secemb_tools.errors import OperationError
from secemb_tools.output import show_json
from secemb_tools.transport import Transport

app = typer.Typer(
    name="secemb_lab",
    help="Measure SecEmb: benchmarks, load tests, bytes on the wire, reports, and the test vectors.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_show_locals=False,  # they may be keys
)
app.add_typer(report.app, name="report")


Names = Annotated[list[str] | None, typer.Option("--catalogue", help="Only this catalogue; may be repeated.")]


def _chosen(names: Sequence[str]) -> list[PaperCatalogue]:
    try:
        return choose(names)
    except OperationError as error:
        raise typer.BadParameter(str(error)) from None


@app.command()
def bench(
    output: Annotated[Path, typer.Option(help="JSON file for the figures.")] = Path("build/bench.json"),
    seconds: Annotated[float, typer.Option(min=0.01, help="Seconds for each group of measurements.")] = 2.0,
    catalogue: Names = None,
    json: AsJson = False,
) -> None:
    """Measure the kernel relative to the AES limit, noise, and the constructions relative to each other."""
    from secemb_lab.bench.bench import run

    with refusals():
        run(output, seconds, _chosen(catalogue or []), as_json=json)


@app.command()
def loadtest(
    output: Annotated[Path, typer.Option(help="JSON file for the figures.")] = Path("build/loadtest.json"),
    devices: Annotated[int, typer.Option(min=2, max=2000, help="Concurrent devices, and sessions in a round.")] = 100,
    rounds: Annotated[int, typer.Option(min=1, max=1000, help="Rounds for each catalogue and transport.")] = 10,
    transport: Annotated[Transport | None, typer.Option(help="Only this transport, not both.")] = None,
    catalogue: Names = None,
    json: AsJson = False,
) -> None:
    """Run many devices against two real servers on loopback, and measure what a session costs."""
    from secemb_lab.loadtest.loadtest import run

    chosen = _chosen(catalogue or ["ML1M", "ML25M", "Yelp"])
    with refusals():
        transports = list(Transport) if transport is None else [transport]
        run(output, chosen, devices=devices, rounds=rounds, transports=transports, as_json=json)


@app.command()
def wire(
    output: Annotated[Path, typer.Option(help="JSON file for the figures.")] = Path("build/wire.json"),
    sessions: Annotated[int, typer.Option(min=2, max=1000, help="Sessions in each timing.")] = 40,
    catalogue: Names = None,
    json: AsJson = False,
) -> None:
    """Count the bytes of a device's round on the wire, and time reads, for both transports.

    Exit code 1 if a device with the relayed transport moves more than its catalogue's limit.
    """
    from secemb_lab.wire.wire import keeps, run

    with refusals():
        figures = run(output, _chosen(catalogue or []), sessions=sessions, as_json=json)
    raise typer.Exit(0 if all(map(keeps, figures["bytes"])) else REFUSED)


@app.command()
def vectors(
    directory: Annotated[Path, typer.Option(help="Directory of the JSON files.")] = Path("tests/vectors"),
    json: AsJson = False,
) -> None:
    """Regenerate the test vectors, with the portable definition."""
    from secemb_lab.vectors.vectors import write

    with refusals():
        files = write(directory)
    if json:
        show_json({"directory": str(directory), "files": files})
    else:
        typer.echo(f"{len(files)} files of vectors in {directory}")


if __name__ == "__main__":
    app(prog_name="python -m secemb_lab")
