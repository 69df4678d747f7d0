"""The `secemb report` commands as Typer sees them; each imports what it needs when it is called."""

from pathlib import Path
from typing import Annotated

import typer

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
) -> None:
    """Train privately and plainly from the same seeds, and compare both with the paper and with a bias-only model."""
    from secemb_tools.report.utility import Request, run

    request = Request(
        path=path,
        models=models or ("mf" if quick else "mf,ncf,fm,deepfm"),
        rounds=rounds or (100 if quick else None),
        private_rounds=(private_rounds if private else 0),
        seed=seed,
        out=out,
    )
    raise typer.Exit(run(request))
