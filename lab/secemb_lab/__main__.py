"""`python -m secemb_lab`: benchmarks, load tests, byte counts, reports and test vectors."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from os import cpu_count
from pathlib import Path
from typing import Annotated

import typer

from secemb_sdk.models.registry import names
from secemb_tools.catalogues import PaperCatalogue, choose
from secemb_tools.cli.options import REFUSED, AsJson, refusals
from secemb_tools.errors import DatasetError, OperationError
from secemb_tools.output import show_json
from secemb_tools.transport import Transport

app = typer.Typer(
    name="secemb_lab",
    help="Measure SecEmb: benchmarks, load tests, bytes on the wire, reports, and the test vectors.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_show_locals=False,  # they may be keys
)
report_app = typer.Typer(help="Measure what the documentation claims about accuracy and privacy.", no_args_is_help=True)
app.add_typer(report_app, name="report")


Names = Annotated[list[str] | None, typer.Option("--catalogue", help="Measure only this catalogue; may be repeated.")]


@contextmanager
def usage_errors() -> Iterator[None]:
    """Show an expected error as a usage error: what is wrong is on the command line."""
    try:
        yield
    except (OperationError, DatasetError) as error:
        raise typer.BadParameter(str(error)) from None


def _chosen(names: Sequence[str]) -> list[PaperCatalogue]:
    with usage_errors():
        return choose(names)


@app.command()
def bench(
    output: Annotated[Path, typer.Option(help="JSON file for the figures.")] = Path("build/bench.json"),
    seconds: Annotated[float, typer.Option(min=0.01, help="Seconds for each group of measurements.")] = 2.0,
    catalogue: Names = None,
    model: Annotated[
        list[str] | None, typer.Option(help="Measure only this model on devices; may be repeated.")
    ] = None,
    json: AsJson = False,
) -> None:
    """Measure the kernel relative to the AES limit, noise, and the constructions relative to each other."""
    from secemb_lab.bench.bench import run
    from secemb_sdk.models import registry

    with refusals():
        models = [registry.find(name).name for name in model or []]
        run(output, seconds, _chosen(catalogue or []), models=models, as_json=json)


@app.command()
def loadtest(
    output: Annotated[Path, typer.Option(help="JSON file for the figures.")] = Path("build/loadtest.json"),
    devices: Annotated[
        int, typer.Option(min=2, max=2000, help="Number of concurrent devices, and of sessions in a round.")
    ] = 100,
    rounds: Annotated[int, typer.Option(min=1, max=1000, help="Rounds for each catalogue and transport.")] = 10,
    transport: Annotated[Transport | None, typer.Option(help="Use only this transport instead of both.")] = None,
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
def memory(
    output: Annotated[Path, typer.Option(help="JSON file for the figures.")] = Path("build/memory.json"),
    items: Annotated[str, typer.Option(help="Sizes of the catalogues, separated by commas.")] = "100000,1000000",
    json: AsJson = False,
) -> None:
    """Measure the peak memory of two real servers, and compare it with `secemb plan`.

    Exits with code 1 if the plan is off by more than a quarter.
    """
    from secemb_lab.loadtest.memory import run

    try:
        sizes = [int(one) for one in items.split(",")]
    except ValueError:
        raise typer.BadParameter("--items must be whole numbers separated by commas, such as 100000,1000000") from None
    if min(sizes) < 100:
        raise typer.BadParameter("--items: each catalogue must have at least 100 items")
    with refusals():
        right = run(output, sizes, as_json=json)
    raise typer.Exit(0 if right else REFUSED)


@app.command()
def wire(
    output: Annotated[Path, typer.Option(help="JSON file for the figures.")] = Path("build/wire.json"),
    sessions: Annotated[int, typer.Option(min=2, max=1000, help="Sessions per measurement.")] = 40,
    catalogue: Names = None,
    json: AsJson = False,
) -> None:
    """Count the bytes of a device's round on the wire, and time reads, for both transports.

    Exits with code 1 if a device with the relayed transport transfers more than its catalogue's limit.
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
        typer.echo(f"{len(files)} vector files written to {directory}")


@app.command()
def quality(
    data: Annotated[Path, typer.Option(help="Directory with ml-100k, ml-1m, gowalla, amazon-video-games.")] = Path(
        "build/data"
    ),
    parts: Annotated[str, typer.Option(help="Parts to run: ratings, models, rankings; separated by commas.")] = "",
    processes: Annotated[
        int | None, typer.Option(min=1, help="Number of concurrent runs; default: the number of cores.")
    ] = None,
    out: Annotated[
        Path, typer.Option(help="JSON file for the figures; the page and plots are written next to it.")
    ] = Path("build/quality.json"),
    quick: Annotated[
        bool, typer.Option("--quick", help="Run a few rounds with made-up data; --data is ignored.")
    ] = False,
    json: AsJson = False,
) -> None:
    """Measure the quality of recommendations for all sets, models and losses, with baselines and published figures.

    Exits with code 1 if a goal is missed. With --parts, the other parts of --out are left unchanged.
    """
    from secemb_lab.report.quality import PARTS, QualityOptions, run

    options = QualityOptions(
        data=data,
        parts=[one.strip() for one in parts.split(",")] if parts else PARTS,
        quick=quick,
        processes=processes or (1 if quick else cpu_count() or 1),
        out=out,
        as_json=json,
    )
    with refusals(), usage_errors():
        code = run(options)
    raise typer.Exit(code)


@app.command()
def sequences(
    data: Annotated[Path, typer.Option(help="Directory with ml-1m, amazon-video-games, shakespeare-roles.")] = Path(
        "build/data"
    ),
    cases: Annotated[
        str, typer.Option(help="Run only these cases, separated by commas, such as ml-1m-sasrec,amazon-size.")
    ] = "",
    processes: Annotated[
        int | None, typer.Option(min=1, help="Processes per run; default: the number of cores.")
    ] = None,
    out: Annotated[
        Path, typer.Option(help="JSON file for the figures; the page, plots and runs are written next to it.")
    ] = Path("build/sequences.json"),
    quick: Annotated[
        bool, typer.Option("--quick", help="Run a few rounds with made-up data; --data is ignored.")
    ] = False,
    resume: Annotated[
        bool,
        typer.Option("--resume", help="Keep the finished cases in --out and continue the one that was interrupted."),
    ] = False,
    json: AsJson = False,
) -> None:
    """Measure how well models of events and texts predict what comes next, with baselines, and at what cost.

    Exits with code 1 if a goal is missed. With --cases, the other cases of --out are left unchanged.
    """
    from secemb_lab.report.sequences import SequenceOptions, run

    options = SequenceOptions(
        data=data,
        cases=[one.strip() for one in cases.split(",")] if cases else (),
        quick=quick,
        resume=resume,
        processes=processes or (1 if quick else cpu_count() or 1),
        out=out,
        as_json=json,
    )
    with refusals(), usage_errors():
        code = run(options)
    raise typer.Exit(code)


@app.command()
def paper(
    data: Annotated[
        Path, typer.Option("--data-dir", help="Folder with the sets; tables without their set say so.")
    ] = Path("build/data"),
    tables: Annotated[str, typer.Option(help="Only these tables, such as upload,ablation; separated by commas.")] = "",
    seeds: Annotated[int, typer.Option(min=1, help="Runs of each case that is trained.")] = 4,
    folder: Annotated[Path, typer.Option(help="Where the page and the figures go.")] = Path("build/paper"),
    quick: Annotated[bool, typer.Option("--quick", help="As little as shows that it runs.")] = False,
    resume: Annotated[bool, typer.Option("--resume", help="Keep the tables that are there.")] = False,
    docs: Annotated[
        bool,
        typer.Option(
            "--docs", help="Measure nothing: add what is in --folder to docs/paper.json, write docs/paper.md."
        ),
    ] = False,
    json: AsJson = False,
) -> None:
    """Measure the paper's tables and figures, each cell beside the paper's own.

    Exit code 1 if a cell differs without a sentence that says why. With --tables the other tables stay as they are.
    """
    from secemb_lab.paper.paper_table import Settings
    from secemb_lab.paper.report import PaperOptions, record, run

    options = PaperOptions(
        names=[one.strip() for one in tables.split(",")] if tables else (),
        settings=Settings(quick=quick, data=data, seeds=1 if quick else seeds, folder=folder),
        resume=resume,
        as_json=json,
    )
    with refusals(), usage_errors():
        code = record(options) if docs else run(options)
    raise typer.Exit(code)


@app.command()
def pacing(
    output: Annotated[Path, typer.Option(help="JSON file for the figures; plots are written next to it.")] = Path(
        "build/pacing.json"
    ),
    processes: Annotated[
        int | None, typer.Option(min=1, help="Number of concurrent runs; default: the number of cores.")
    ] = None,
    devices: Annotated[
        list[int] | None,
        typer.Option(help="Simulate only fleets of this size: 1000, 100000, 1000000; may be repeated."),
    ] = None,
    quick: Annotated[
        bool, typer.Option("--quick", help="Simulate fewer fleets, for minutes instead of hours.")
    ] = False,
    json: AsJson = False,
) -> None:
    """Simulate fleets of up to a million devices against server 0's own conductor and pace, in virtual time.

    Exits with code 1 if a goal is missed.
    """
    from secemb_lab.pacing.report import run

    with refusals(), usage_errors():
        reached = run(output, quick=quick, devices=devices or [], processes=processes or cpu_count() or 1, as_json=json)
    raise typer.Exit(0 if reached else REFUSED)


@app.command()
def attack(
    output: Annotated[
        Path, typer.Option(help="JSON file for the figures; a page and a plot are written next to it.")
    ] = Path("build/attack.json"),
    attack: Annotated[
        list[str] | None, typer.Option(help="Run only this attack and the baseline without an attack; may be repeated.")
    ] = None,
    rounds: Annotated[int | None, typer.Option(min=1, max=1000, help="Rounds under each attack.")] = None,
    quick: Annotated[
        bool, typer.Option("--quick", help="Run fewer attacks, one round each, without timing goals.")
    ] = False,
    resume: Annotated[
        bool, typer.Option("--resume", help="Keep the finished attacks in --output, and run those that are missing.")
    ] = False,
    json: AsJson = False,
) -> None:
    """Run hostile clients against two real servers on loopback, and measure their effect.

    Exits with code 1 if a goal is missed.
    """
    from secemb_lab.attack.report import run

    with refusals(), usage_errors():
        reached = run(output, quick=quick, names=attack or [], rounds=rounds, resume=resume, as_json=json)
    raise typer.Exit(0 if reached else REFUSED)


@app.command()
def scale(
    out: Annotated[Path, typer.Option(help="JSON file for the figures; a page is written next to it.")] = Path(
        "build/scale.json"
    ),
    sections: Annotated[
        str, typer.Option(help="Measure only these sections, separated by commas; the others in --out are kept.")
    ] = "",
    quick: Annotated[
        bool, typer.Option("--quick", help="Use small catalogues, without goals that depend on time.")
    ] = False,
    resume: Annotated[bool, typer.Option("--resume", help="Keep the sections that are in --out.")] = False,
    json: AsJson = False,
) -> None:
    """Measure what a server does with more than one machine.

    Exits with code 1 if a goal is missed.
    """
    from secemb_lab.scale.report import run

    names = [one.strip() for one in sections.split(",")] if sections else []
    with refusals(), usage_errors():
        code = run(out, names=names, quick=quick, resume=resume, as_json=json)
    raise typer.Exit(code)


@report_app.command()
def dp(
    path: Annotated[Path, typer.Option(help="A set of ratings: a directory or a file, as `secemb simulate` reads it.")],
    models: Annotated[str, typer.Option(help=f"Models to run: {', '.join(names())}; separated by commas.")] = "",
    cohorts: Annotated[
        str,
        typer.Option(
            help=(
                "Average numbers of devices in a round, separated by commas; default: 100,500, or fewer for a "
                "small set."
            )
        ),
    ] = "",
    budgets: Annotated[str, typer.Option(help="Values of ε, separated by commas.")] = "",
    unit: Annotated[str, typer.Option(help="Unit of privacy: user, or record as in the paper.")] = "user",
    delta: Annotated[float, typer.Option(help="δ of the privacy guarantee.")] = 1e-4,
    rounds: Annotated[
        int | None, typer.Option(min=1, help="Rounds of each run, instead of the report's default.")
    ] = None,
    seed: Annotated[int, typer.Option(min=0, help="Seed of the split, cohorts and initial weights.")] = 1,
    out: Annotated[
        Path, typer.Option(help="JSON file for the figures; the table and curves are written next to it.")
    ] = Path("build/dp.json"),
    quick: Annotated[
        bool, typer.Option("--quick", help="Run one budget for 10 rounds, and only mf unless --models is given.")
    ] = False,
    device_by_device: Annotated[
        bool,
        typer.Option("--device-by-device", help="Draw the noise of each device separately (slow)."),
    ] = False,
    resume: Annotated[
        bool, typer.Option("--resume", help="Keep the runs in --out and run only those that are missing.")
    ] = False,
    json: AsJson = False,
) -> None:
    """Train with noise from the servers and from the devices, for several ε: the cost of privacy in accuracy."""
    from secemb_lab.report.dp import DpOptions, run
    from secemb_lab.report.published import REPORTED

    options = DpOptions(
        path=path,
        models=models or ("mf" if quick or unit == "record" else ",".join(REPORTED)),
        cohorts=cohorts,
        budgets=budgets or ("8" if quick else "1,2,4,8,16"),
        unit=unit,
        delta=delta,
        rounds=rounds or (10 if quick else None),
        seed=seed,
        out=out,
        device_by_device=device_by_device,
        resume=resume,
        as_json=json,
    )
    with refusals(), usage_errors():
        code = run(options)
    raise typer.Exit(code)


if __name__ == "__main__":
    app(prog_name="python -m secemb_lab")
