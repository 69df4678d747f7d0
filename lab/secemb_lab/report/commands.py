"""The `report` commands of the laboratory; each imports what it needs when it is called."""

from pathlib import Path
from typing import Annotated

import typer

from secemb_tools.cli.options import AsJson, refusals

app = typer.Typer(help="Measure what the documentation claims about accuracy and privacy.", no_args_is_help=True)


@app.callback()
def group() -> None:
    """Measure what the documentation claims about accuracy and privacy."""


@app.command()
def utility(
    path: Annotated[Path, typer.Option(help="Directory of MovieLens 100K or 1M, as GroupLens publishes it.")],
    models: Annotated[str, typer.Option(help="Which of mf, ncf, fm, deepfm; separated by commas.")] = "",
    rounds: Annotated[int | None, typer.Option(min=1, help="Rounds for each model instead of the recipe's.")] = None,
    private_rounds: Annotated[int | None, typer.Option(min=1, help="End the private run after these rounds.")] = None,
    seed: Annotated[int, typer.Option(min=0, help="Seed of split, cohorts and first weights.")] = 1,
    private: Annotated[bool, typer.Option("--private/--plain", help="Run privately as well, or plainly only.")] = True,
    out: Annotated[Path, typer.Option(help="Where the figures go as JSON; the curves go beside it.")] = Path(
        "build/utility.json"
    ),
    quick: Annotated[
        bool, typer.Option("--quick", help="Run 100 rounds, and only mf unless --models names others.")
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
    with refusals():
        code = run(options)
    raise typer.Exit(code)


@app.command()
def dp(
    path: Annotated[Path, typer.Option(help="Directory of MovieLens 100K or 1M, as GroupLens publishes it.")],
    models: Annotated[str, typer.Option(help="Which of mf, ncf, fm, deepfm; separated by commas.")] = "",
    cohorts: Annotated[str, typer.Option(help="Average devices in a round, separated by commas.")] = "100,500",
    budgets: Annotated[str, typer.Option(help="Values of ε, separated by commas.")] = "",
    unit: Annotated[str, typer.Option(help="Unit of privacy: user, or record as in the paper.")] = "user",
    delta: Annotated[float, typer.Option(help="δ of the privacy guarantee.")] = 1e-4,
    rounds: Annotated[int | None, typer.Option(min=1, help="Rounds of each run instead of the report's own.")] = None,
    seed: Annotated[int, typer.Option(min=0, help="Seed of split, cohorts and first weights.")] = 1,
    out: Annotated[Path, typer.Option(help="Where the figures go as JSON; table and curves go beside it.")] = Path(
        "build/dp.json"
    ),
    quick: Annotated[
        bool, typer.Option("--quick", help="Run one budget, 10 rounds, and only mf unless --models names others.")
    ] = False,
    device_by_device: Annotated[
        bool,
        typer.Option("--device-by-device", help="Draw the noise of each device separately (slow)."),
    ] = False,
    resume: Annotated[
        bool, typer.Option("--resume", help="Keep the runs in --out, and add those that are missing.")
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
    with refusals():
        code = run(options)
    raise typer.Exit(code)
