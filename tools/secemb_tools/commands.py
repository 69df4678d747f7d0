"""All commands of `secemb`, as Typer sees them."""

from pathlib import Path
from typing import Annotated

import typer

from secemb_tools.data_commands import app as data_app
from secemb_tools.device.commands import app as device_app
from secemb_tools.operate import answer
from secemb_tools.operate import commands as operating
from secemb_tools.operate.options import AsJson
from secemb_tools.operate.refusal import REFUSED, refusals
from secemb_tools.planning.commands import plan
from secemb_tools.report import commands as reporting
from secemb_tools.simulation import commands as simulating
from secemb_tools.transport import Transport

app = typer.Typer(
    name="secemb",
    help="Train recommenders on people's devices without learning what they like.",
    no_args_is_help=True,
    add_completion=True,
    pretty_exceptions_show_locals=False,  # they may be keys
)


@app.command()
def kernel(json: AsJson = False) -> None:
    """Say in one line which implementation does the work."""
    from secemb_tools.kernel import describe, facts

    if json:
        answer.show_json(facts())
    else:
        typer.echo(describe())


@app.command()
def bench(
    output: Annotated[Path, typer.Option(help="Where the figures go as JSON.")] = Path("build/bench.json"),
    seconds: Annotated[float, typer.Option(min=0.01, help="Time for each group of measurements.")] = 2.0,
    catalogue: Annotated[list[str] | None, typer.Option(help="Only this catalogue; may be given again.")] = None,
    json: AsJson = False,
) -> None:
    """Measure the kernel against the AES limit, noise, and the constructions against each other."""
    from secemb_tools.bench.catalogues import choose
    from secemb_tools.bench.running import run

    with refusals():
        run(output, seconds, choose(catalogue or []), as_json=json)


@app.command()
def loadtest(
    output: Annotated[Path, typer.Option(help="Where the figures go as JSON.")] = Path("build/loadtest.json"),
    devices: Annotated[int, typer.Option(min=2, max=2000, help="Devices at once, and sessions of a round.")] = 100,
    rounds: Annotated[int, typer.Option(min=1, max=1000, help="Rounds for each catalogue and transport.")] = 10,
    transport: Annotated[Transport | None, typer.Option(help="Only this transport, not both.")] = None,
    catalogue: Annotated[list[str] | None, typer.Option(help="Only this catalogue; may be given again.")] = None,
    json: AsJson = False,
) -> None:
    """Let many devices call two real services on loopback, and measure what a session costs."""
    from secemb_tools.bench.catalogues import choose
    from secemb_tools.loadtest import run

    chosen = choose(catalogue or ["ML1M", "ML25M", "Yelp"])
    with refusals():
        transports = list(Transport) if transport is None else [transport]
        run(output, chosen, devices=devices, rounds=rounds, transports=transports, as_json=json)


@app.command()
def wire(
    output: Annotated[Path, typer.Option(help="Where the figures go as JSON.")] = Path("build/wire.json"),
    sessions: Annotated[int, typer.Option(min=2, max=1000, help="Sessions of each measurement of time.")] = 40,
    catalogue: Annotated[list[str] | None, typer.Option(help="Only this catalogue; may be given again.")] = None,
    json: AsJson = False,
) -> None:
    """Count the bytes of a device's round on the wire, and time reads, directly and through server 0 alone.

    Exit code 1 if a device with the relayed transport moves more than its catalogue's limit.
    """
    from secemb_tools.bench.catalogues import choose
    from secemb_tools.wire import keeps, run

    with refusals():
        figures = run(output, choose(catalogue or []), sessions=sessions, as_json=json)
    raise typer.Exit(0 if all(map(keeps, figures["bytes"])) else REFUSED)


@app.command()
def vectors(
    directory: Annotated[Path, typer.Option(help="Where the JSON files go.")] = Path("tests/vectors"),
    json: AsJson = False,
) -> None:
    """Write the test vectors anew, with the portable definition."""
    from secemb_tools.vectors import write

    with refusals():
        files = write(directory)
    if json:
        answer.show_json({"directory": str(directory), "files": files})
    else:
        typer.echo(f"{len(files)} files of vectors in {directory}")


@app.command(hidden=True)
def reference(
    out: Annotated[Path | None, typer.Option(help="The file to write; without it, print.")] = None,
) -> None:
    """Write the reference of all commands, which is docs/cli.md."""
    from secemb_tools.reference import write_reference

    with refusals():
        write_reference(typer.main.get_command(app), out)


simulating.register(app)
operating.register(app)
app.command()(plan)
app.add_typer(device_app, name="device")
app.add_typer(data_app, name="data")
app.add_typer(reporting.app, name="report")


def main() -> None:
    """Run the command line."""
    app(prog_name="secemb")
