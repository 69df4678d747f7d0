"""The `secemb report` commands as Typer sees them; each imports what it needs when it is called."""

from pathlib import Path
from typing import Annotated

import typer

from secemb_tools.cli.options import AsJson

app = typer.Typer(help="Measure anew what is claimed about this project.", no_args_is_help=True)


@app.callback()
def group() -> None:
    """Measure anew what is claimed about this project."""


@app.command()
def utility(
    path: Annotated[Path, typer.Option(help="Directory of MovieLens 100K or 1M, as GroupLens publishes it.")],
    models: Annotated[str, typer.Option(help="Which of mf, ncf, fm, deepfm; separated by commas.")] = "",
    rounds: Annotated[int | None, typer.Option(min=1, help="Rounds for each model instead of the recipe's.")] = None,
    private_rounds: Annotated[int | None, typer.Option(min=1, help="End the private run after so many.")] = None,
    seed: Annotated[int, typer.Option(min=0, help="Seed of split, cohorts and first weights.")] = 1,
    private: Annotated[bool, typer.Option("--private/--plain", help="With the private run, or without it.")] = True,
    out: Annotated[Path, typer.Option(help="Where the figures go as JSON; the curves go beside it.")] = Path(
        "build/utility.json"
    ),
    quick: Annotated[
        bool, typer.Option("--quick", help="A hundred rounds, and of MF unless models are named.")
    ] = False,
    json: AsJson = False,
) -> None:
    """Train privately and plainly from the same seeds, and compare both with the paper and with a bias-only model."""
    from secemb_lab.report.utility import UtilityOptions, run
    from secemb_tools.simulation.recipes import REPORTED

    options = UtilityOptions(
        path=path,
        models=models or ("mf" if quick else ",".join(REPORTED)),
        rounds=rounds or (100 if quick else None),
        private_rounds=(private_rounds if private else 0),
        seed=seed,
        out=out,
        as_json=json,
    )
    raise typer.Exit(run(options))


@app.command()
def dp(
    path: Annotated[Path, typer.Option(help="Directory of MovieLens 100K or 1M, as GroupLens publishes it.")],
    models: Annotated[str, typer.Option(help="Which of mf, ncf, fm, deepfm; separated by commas.")] = "",
    cohorts: Annotated[str, typer.Option(help="Devices of a round, on average; separated by commas.")] = "100,500",
    budgets: Annotated[str, typer.Option(help="Values of ε, separated by commas.")] = "",
    unit: Annotated[str, typer.Option(help="What is hidden: user, or record as in the paper (not deepfm).")] = "user",
    delta: Annotated[float, typer.Option(help="δ of the promise.")] = 1e-4,
    rounds: Annotated[int | None, typer.Option(min=1, help="Rounds of each run instead of the report's own.")] = None,
    seed: Annotated[int, typer.Option(min=0, help="Seed of split, cohorts and first weights.")] = 1,
    out: Annotated[Path, typer.Option(help="Where the figures go as JSON; table and curves go beside it.")] = Path(
        "build/dp.json"
    ),
    quick: Annotated[
        bool, typer.Option("--quick", help="One budget, few rounds, and mf unless models are named.")
    ] = False,
    device_by_device: Annotated[
        bool,
        typer.Option("--device-by-device", help="Draw each device's noise on its own, not a round's at once: slow."),
    ] = False,
    resume: Annotated[
        bool, typer.Option("--resume", help="Keep the runs that --out holds, and add those that it lacks.")
    ] = False,
    json: AsJson = False,
) -> None:
    """Train with noise of the servers and with noise of the devices, over ε: what privacy costs in accuracy."""
    from secemb_lab.report.dp import DpOptions, run
    from secemb_tools.simulation.recipes import REPORTED

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
    raise typer.Exit(run(options))
